// mantissa help, version, completion, manual. Runs all commands; converts errors to exit codes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/help.h"
#include "mantissa/app/cli/key_help.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/app/cli/together.h"
#include "mantissa/app/cli/unknown.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"

namespace mantissa::cli {
namespace {

enum Exit : int { kDone = 0, kStopped = 1, kBadInput = 2 };

/// The end of a command.
struct Outcome {
  int code = kDone;
  std::string message = {};  // of an error that is not printed yet: that of a rank that does not lead
  bool lost = false;         // another rank ended
  bool failed = false;       // by an error
};

Outcome fail(const std::string& message, int code) {
  if (!ranks().leads()) return {.code = code, .message = message, .failed = true};
  std::fflush(stdout);
  print_message(Message::error, fmt::format("mantissa: {}\n", message));
  return {.code = code, .failed = true};
}

/// Returns true if the command has the options of the cure.
bool takes(const Command& command, const Cure& cure) {
  return std::ranges::all_of(cure.arguments, [&](const std::string& argument) {
    return !argument.starts_with("--") ||
           find_option(command, argument.substr(0, argument.find('='))) != nullptr;
  });
}

/// Prints the message, followed by each cure as a command that runs as printed.
Outcome fail(const Error& e, const std::optional<Arguments>& a, int code) {
  if (!a || e.cures().empty() || !ranks().leads()) return fail(e.what(), code);
  fail(e.message(), code);
  const char* before = "fix";
  for (const Cure& cure : e.cures()) {
    if (!takes(a->command(), cure)) continue;
    print_error(fmt::format("{}{}:\n  {}\n", std::exchange(before, "or"),
                            cure.remark().empty() ? "" : fmt::format(" ({})", cure.remark()), a->with(cure)));
  }
  return {.code = code, .failed = true};
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
  if (word == "presets") return print_sections(list_of_presets());
  if (const std::optional<std::string> preset = help_on_preset(word)) return print(*preset);
  if (const std::optional<std::string> key = help_on_key(word)) return print(*key);
  throw ConfigError(unknown_help(word));
}

/// Uses the colours that the words ask for, also for errors of the words themselves. Returns the number of
/// words that do.
std::size_t read_color(const std::vector<std::string>& words) {
  std::size_t read = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (const auto& [word, color] : {std::pair{"always", Color::always}, std::pair{"never", Color::never},
                                      std::pair{"auto", Color::automatic}}) {
      const bool apart = words[i] == "--color" && i + 1 < words.size() && words[i + 1] == word;
      if (!apart && words[i] != fmt::format("--color={}", word)) continue;
      use_color(color);
      read += apart ? 2 : 1;
    }
  }
  return read;
}

/// Runs the command that `a` names, or prints the overview without one. Returns the exit code.
int run_command(const std::optional<Arguments>& a) {
  if (!a) return print_sections(overview());
  if (!a->group().empty()) return print_sections(help_on_group(a->group()));  // "mantissa data"
  if (a->has("--help")) return print_sections(help(a->command()));
  if (ranks().size() > 1 && !a->command().shared) {
    throw ConfigError("{} processes were started, but `{}` runs in one. Fix: start it without mpirun or srun",
                      ranks().size(), a->command().name);
  }
  return a->command().run(*a);
}

/// Does the same, and writes out all output. Throws ResourceError if standard output cannot be written.
int run(const std::optional<Arguments>& a) {
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

Commands program_commands() {
  return {
      {.name = "help",
       .summary = "print help on a command, a key of a config or a preset, or the list of commands",
       .positionals = {{"[COMMAND|KEY|PRESET]",
                        "the command; a key, such as optimizer.lr, a section, or keys for all of them; or a "
                        "preset, such as bf16-mixed, or presets for all of them"}},
       .run = print_help},
      {.name = "version",
       .summary = "print the version",
       .run = [](const Arguments& /*a*/) { return print(fmt::format("mantissa {}\n", api::version())); }},
      {.name = "completion",
       .summary = "print a completion script for a shell",
       .positionals = {{"bash|zsh|fish", "the shell"}},
       .details = "bash: eval \"$(mantissa completion bash)\" in ~/.bashrc; zsh: the same in ~/.zshrc after "
                  "compinit; fish: mantissa completion fish | source.",
       .run = [](const Arguments& a) { return print(completion(a.at(0))); }},
      {.name = "manual",
       .summary = "print the manual page (roff)",
       .details = "To view it, run: mantissa manual | man -l -",
       .run = [](const Arguments& /*a*/) { return print(manual()); }}};
}

namespace {

/// Runs the command line of one process, which `a` receives.
Outcome try_words(int argc, const char* const* argv, std::optional<Arguments>& a) {
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (read_color(words) < words.size()) a.emplace(argv[0], words);
    return {run(a)};
  } catch (const RankLost& e) {
    return {kStopped, e.what(), true};
  } catch (const RunStopped& e) {
    return fail(e, a, kStopped);
  } catch (const ResourceError& e) {
    return fail(e, a, kStopped);
  } catch (const Error& e) {
    return fail(e, a, kBadInput);
  } catch (const std::bad_alloc&) {
    return fail("out of memory; free some, or use a smaller model, input or batch.micro_batch_size",
                kStopped);
  } catch (const std::filesystem::filesystem_error& e) {
    return fail(
        fmt::format("{}: the path cannot be resolved: {}; check that its folders exist and can be read",
                    e.path1().empty() ? "the current folder" : printable(e.path1().string()),
                    e.code().message()),
        kStopped);
  } catch (const std::system_error& e) {
    return fail(fmt::format("{}: {}; raise the limit (ulimit -u for threads, ulimit -v for memory, "
                            "ulimit -n for open files) or use fewer --threads",
                            e.code() == std::errc::resource_unavailable_try_again
                                ? "the system starts no further thread"
                                : "the system refused a lock or a thread",
                            e.code().message()),
                kStopped);
  } catch (const std::exception& e) {
    return fail(fmt::format("{} (this is a bug in the program: please report it with the command)",
                            printable(e.what())),
                kStopped);
  }
}

Outcome run_words(int argc, const char* const* argv) {
  std::optional<Arguments> a;
  Outcome outcome = try_words(argc, argv, a);
  if (outcome.failed && a && a->command().errors_are_2) outcome.code = kBadInput;
  return outcome;
}

/// Joins the processes that a launcher started with this one.
Outcome start_together() {
  try {
    join_ranks();
    return {};
  } catch (const ConfigError& e) {
    return fail(e.what(), kBadInput);
  } catch (const Error& e) {
    return fail(e.what(), kStopped);
  }
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  Outcome outcome = start_together();
  if (outcome.code == kDone) outcome = run_words(argc, argv);
  return leave_ranks(outcome.code, outcome.message, outcome.lost);
}

}  // namespace mantissa::cli
