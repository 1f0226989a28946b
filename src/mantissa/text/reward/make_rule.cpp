// The rule that the text of rl.reward names.
#include <fmt/format.h>

#include <string_view>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"
#include "mantissa/text/reward/rules.h"

namespace mantissa::reward {
namespace {

constexpr std::string_view kRegex = "regex:", kProgram = "program:";

/// Returns the command of a program. Throws ConfigError if the rule has another kind.
std::string command_of(const std::string& rule) {
  if (!rule.starts_with(kProgram)) {
    if (rule.starts_with("model:") || rule == "model") {
      throw ConfigError(
          "a reward model is not a rule. Write a program that scores with it, \"program:COMMAND\" "
          "(docs/post-training.md, \"A reward model as the reward\")");
    }
    static const std::vector<std::string> kNames = {"kk", "exact", "regex", "program"};
    const bool known = rule == "regex" || rule == "program";
    throw ConfigError(
        fmt::format("expected kk, exact, \"regex:PATTERN\" or \"program:COMMAND\"{}",
                    known ? "" : did_you_mean(std::string_view(rule).substr(0, rule.find(':')), kNames)));
  }
  std::string command = rule.substr(kProgram.size());
  if (trimmed(command).empty()) {
    throw ConfigError(
        "the command is empty; write \"program:COMMAND\", such as \"program:python3 score.py\"");
  }
  if (command.find('\0') != std::string::npos) throw ConfigError("the command has a NUL byte");
  return command;
}

/// Returns the rule, or null for a program.
std::unique_ptr<Rule> rule_within(const std::string& rule, const RuleOptions& options) {
  if (rule == "kk") return kk_rule(options.marked);
  if (rule == "exact") return exact_rule();
  return rule.starts_with(kRegex) ? regex_rule(std::string_view(rule).substr(kRegex.size())) : nullptr;
}

}  // namespace

bool runs_program(const std::string& rule) {
  return rule.starts_with(kProgram);
}

void check_rule(const std::string& rule) {
  if (rule_within(rule, {}) == nullptr) command_of(rule);
}

std::unique_ptr<Rule> make_rule(const std::string& rule, const RuleOptions& options) {
  std::string command;
  try {
    if (auto made = rule_within(rule, options)) return made;
    command = command_of(rule);
  } catch (const ConfigError& e) {
    throw ConfigError(fmt::format("reward {}: {}", in_quotes(rule), e.what()));
  }
  return program_rule(std::move(command), options);
}

}  // namespace mantissa::reward
