// The rule that the text of rl.reward names.
#include <fmt/format.h>

#include <string_view>

#include "mantissa/base/error.h"
#include "mantissa/base/words.h"
#include "mantissa/reward/rules.h"

namespace mantissa::reward {
namespace {

constexpr std::string_view kRegex = "regex:", kProgram = "program:";

/// Calls one of the functions for the kind of the rule: `plain` with its name, the others with what follows
/// the colon.
template <class Plain, class Regex, class Program>
auto of_kind(const std::string& rule, const Plain& plain, const Regex& regex, const Program& program) {
  if (rule == "kk" || rule == "exact") return plain(rule);
  if (rule.starts_with(kRegex)) return regex(rule.substr(kRegex.size()));
  if (!rule.starts_with(kProgram)) {
    static const std::vector<std::string> kNames = {"kk", "exact", "regex", "program"};
    const bool known = rule == "regex" || rule == "program";
    throw ConfigError(fmt::format("reward {}: expected kk, exact, \"regex:PATTERN\" or \"program:COMMAND\"{}",
                                  in_quotes(rule),
                                  known ? "" : did_you_mean(rule.substr(0, rule.find(':')), kNames)));
  }
  const std::string command = rule.substr(kProgram.size());
  if (trimmed(command).empty()) {
    throw ConfigError(fmt::format(
        "reward {}: the command is empty; write \"program:COMMAND\", such as \"program:python3 score.py\"",
        in_quotes(rule)));
  }
  if (command.find('\0') != std::string::npos)
    throw ConfigError(fmt::format("reward {}: the command has a NUL byte", in_quotes(rule)));
  return program(command);
}

}  // namespace

void check_rule(const std::string& rule) {
  of_kind(
      rule, [](const std::string&) {}, [](const std::string& pattern) { regex_rule(pattern); },
      [](const std::string&) {});
}

std::unique_ptr<Rule> make_rule(const std::string& rule, const RuleOptions& options) {
  return of_kind(
      rule, [&](const std::string& name) { return name == "kk" ? kk_rule(options.marked) : exact_rule(); },
      [](const std::string& pattern) { return regex_rule(pattern); },
      [&](const std::string& command) { return program_rule(command, options); });
}

}  // namespace mantissa::reward
