// Runs commands, and converts errors to messages and exit codes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <system_error>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/help.h"
#include "mantissa/app/cli/key_help.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/app/cli/unknown.h"
#include "mantissa/core/base/printable.h"

namespace mantissa::cli {
namespace {

enum Exit : int { kDone = 0, kStopped = 1, kBadInput = 2 };

int fail(const std::string& message, int code) {
  std::fflush(stdout);
  print_message(Message::error, fmt::format("mantissa: {}\n", message));
  return code;
}

/// Prints the message, followed by each cure as a command that runs as printed.
int fail(const Error& e, const std::optional<Arguments>& a, int code) {
  if (!a || e.cures().empty()) return fail(e.what(), code);
  fail(e.message(), code);
  for (std::size_t i = 0; i < e.cures().size(); ++i) {
    const Cure& cure = e.cures()[i];
    print_error(fmt::format("{}{}:\n  {}\n", i == 0 ? "fix" : "or",
                            cure.remark().empty() ? "" : fmt::format(" ({})", cure.remark()), a->with(cure)));
  }
  return code;
}

int print(const std::string& text) {
  fmt::print("{}", text);
  return kDone;
}

int print_sections(const std::string& text) {
  print_with_headings(text);
  return kDone;
}

int print_help(const Arguments& a) {
  const std::string& word = a.at(0);
  if (word.empty()) return print_sections(help());
  if (const Command* command = find_command(word)) return print_sections(help(*command));
  if (const std::string group = help_on_group(word); !group.empty()) return print_sections(group);
  if (const std::optional<std::string> key = help_on_key(word)) return print(*key);
  throw ConfigError(unknown_help(word));
}

/// Runs the command that `a` names, and returns its exit code.
int run_command(const Arguments& a) {
  using Run = int (*)(const Arguments&);
  static constexpr std::pair<std::string_view, Run> kRuns[] = {
      {"init", init},
      {"train", train},
      {"rl", rl},
      {"generate", generate},
      {"chat", chat},
      {"eval", eval},
      {"trace", trace},
      {"explain", explain},
      {"audit", audit},
      {"compare", compare},
      {"inspect", inspect},
      {"diff", diff},
      {"convert", convert},
      {"merge", merge},
      {"loss-scale", loss_scale},
      {"objective", objective},
      {"reward", reward},
      {"data kk", data_kk},
      {"data inspect", data_inspect},
      {"data shard", data_shard},
      {"tokenizer encode", tokenizer_encode},
      {"tokenizer decode", tokenizer_decode},
      {"tokenizer info", tokenizer_info},
      {"tokenizer train", tokenizer_train},
      {"doctor", doctor},
      {"help", print_help},
      {"version", [](const Arguments&) { return print(fmt::format("mantissa {}\n", api::version())); }},
      {"completion", [](const Arguments& all) { return print(completion(all.at(0))); }},
      {"manual", [](const Arguments&) { return print(manual()); }},
  };
  use_color(color_of(a.text("--color")));
  if (a.has("--help"))
    return print_sections(a.group().empty() ? help(a.command()) : help_on_group(a.group()));
  for (const auto& [name, runs] : kRuns) {
    if (name == a.command().name) return runs(a);
  }
  throw InternalError(fmt::format("the command {} has no implementation", a.command().name));
}

/// Does the same, and writes out all output. Throws ResourceError if standard output cannot be written.
int run(const Arguments& a) {
  try {
    const int code = run_command(a);
    flush_output();
    return code;
  } catch (const std::system_error& e) {  // thrown by fmt::print
    if (std::ferror(stdout) == 0) throw;
    throw_output_error(e.code().value());
  }
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  if (argc < 2) {
    print_error(overview());
    return kBadInput;
  }
  std::optional<Arguments> a;
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    for (const Color color : {Color::always, Color::never}) {  // also for errors of the words themselves
      const char* word = color == Color::always ? "--color=always" : "--color=never";
      if (std::ranges::find(words, word) != words.end()) use_color(color);
    }
    a.emplace(argv[0], words);
    return run(*a);
  } catch (const RunStopped& e) {
    return fail(e, a, kStopped);
  } catch (const ResourceError& e) {
    return fail(e, a, kStopped);
  } catch (const Error& e) {
    return fail(e, a, kBadInput);
  } catch (const std::bad_alloc&) {
    return fail("out of memory; use a smaller batch.micro_batch_size or model", kStopped);
  } catch (const std::exception& e) {
    return fail(fmt::format("{} (this is a bug in the program: please report it with the command)",
                            printable(e.what())),
                kStopped);
  }
}

}  // namespace mantissa::cli
