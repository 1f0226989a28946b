#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "mantissa/api/error.h"
#include "mantissa/base/suggest.h"
#include "mantissa/cli/options.h"

namespace mantissa::cli {
namespace {

enum Exit : int { kDone = 0, kStopped = 1, kBadInput = 2 };

int fail(const std::string& message, int code) {
  std::fflush(stdout);
  fmt::print(stderr, "mantissa: {}\n", message);
  return code;
}

/// A command of the plan that this version does not have yet is named, not guessed.
std::string unknown_command(const std::string& word) {
  static constexpr std::array kLater = {"rl", "audit", "compare", "search", "diff", "reward", "tokenizer"};
  static const std::vector<std::string> kCommands = {"train",   "generate", "eval",       "trace", "explain",
                                                     "inspect", "convert",  "loss-scale", "data",  "doctor"};
  if (std::find(kLater.begin(), kLater.end(), word) != kLater.end()) {
    return fmt::format(
        "{}: this version does not have the command; it has train, generate, eval, trace, explain, inspect, "
        "convert, loss-scale, data, doctor",
        word);
  }
  const std::optional<std::string> near = nearest(word, kCommands);
  return fmt::format("{}: there is no such command{}; see mantissa --help", word,
                     near ? fmt::format(", did you mean {}?", *near) : "");
}

int parse_failed(const CLI::App& app, const CLI::ParseError& e, int argc, const char* const* argv) {
  if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success))
    return app.exit(e);  // --help, --version
  const std::string first = argc > 1 ? argv[1] : "";
  if (!first.empty() && first[0] != '-' && app.get_subcommands().empty())
    return fail(unknown_command(first), kBadInput);
  std::string message = e.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return fail(fmt::format("{}; see mantissa {}--help", message,
                          app.get_subcommands().empty() ? "" : app.get_subcommands()[0]->get_name() + " "),
              kBadInput);
}

}  // namespace

void CommonOptions::add_to(CLI::App& command) {
  command
      .add_option("--precision", precision,
                  "Policy: a preset or alias (32-true, bf16-mixed, 64-true) or a line of fields")
      ->type_name("NAME|LINE");
  command.add_option("--rule", rules, "'SCOPE: field=value …' for a part of the model; later rules win")
      ->type_name("RULE")
      ->take_all();
  command.add_option("--set", set, "section.key=value of the config")->type_name("KEY=VALUE")->take_all();
  command
      .add_option("--deepspeed", deepspeed,
                  "A DeepSpeed JSON: policy, loss scale, batch, clipping, optimizer, schedule")
      ->type_name("FILE");
  command
      .add_option("--target", targets,
                  "explain: another machine too (v100, a100, h100, tpu-v5e, FILE.toml); may be repeated")
      ->type_name("HARDWARE")
      ->allow_extra_args(false);
  command.add_option("--threads", threads, "Threads; 0 for all cores (changes no bit)");
  command.add_option("--simd", simd, "Instruction set: avx2, avx512, neon (changes no bit)");
  command.add_option("--device", device, "cpu");
  command.add_flag("--json", json, "JSON only on standard output");
  command.add_flag("--quiet", quiet, "Print errors and results only");
}

CLI::Validator whole_seed() {
  return CLI::Validator(
      [](const std::string& text) {
        const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
        return digits && text.size() <= 19 ? std::string()
                                           : "a seed is a whole number of at most 19 digits, not " + text;
      },
      "");
}

api::Precision CommonOptions::policy(bool explains) const {
  if (!targets.empty() && !explains)
    throw ConfigError("--target: runs are on this machine; explain (or train --dry-run) takes it");
  return {precision, rules, deepspeed};
}

void CommonOptions::tell(const std::vector<std::string>& notes,
                         const std::vector<std::string>& warnings) const {
  if (quiet) return;
  for (const std::string& note : notes) fmt::print(stderr, "mantissa: note: {}\n", note);
  for (const std::string& warning : warnings) fmt::print(stderr, "mantissa: warning: {}\n", warning);
}

void CommonOptions::tell_policy() const {
  const api::Reading reading = api::read_precision(policy());
  tell(reading.notes, reading.warnings);
}

api::Hardware CommonOptions::hardware() const {
  return {threads, simd, device};
}

int run_command_line(int argc, const char* const* argv) {
  CLI::App app(
      "Mantissa trains language models at any numeric precision, and shows exactly what the precision did.",
      "mantissa");
  app.set_version_flag("--version", "mantissa " + api::version());
  app.require_subcommand(1);
  CommonOptions common;
  Run run;
  for (const auto add : {add_train, add_generate, add_eval, add_trace, add_explain, add_inspect, add_convert,
                         add_loss_scale, add_data, add_doctor})
    add(app, common, run);
  try {
    // "--resume" may stand alone or with "=STEP"; the word after it is never its value.
    std::vector<std::string> words(argv + 1, argv + argc);
    for (std::string& w : words) w = w == "--resume" ? "--resume=latest" : w;
    std::reverse(words.begin(), words.end());
    app.parse(words);
  } catch (const CLI::ParseError& e) {
    return parse_failed(app, e, argc, argv);
  }
  try {
    return run();
  } catch (const RunStopped& e) {
    return fail(e.what(), kStopped);
  } catch (const ResourceError& e) {
    return fail(e.what(), kStopped);
  } catch (const Error& e) {
    return fail(e.what(), kBadInput);
  } catch (const std::bad_alloc&) {
    return fail("memory: an allocation was refused; use a smaller batch.micro_batch_size or model", kStopped);
  } catch (const std::exception& e) {
    return fail(
        fmt::format("{} (this is a fault of the program: please report it with the command)", e.what()),
        kStopped);
  }
}

}  // namespace mantissa::cli
