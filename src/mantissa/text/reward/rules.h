// The rules of rewards, one row for each: what make_rule(), help, messages and docs/post-training.md name.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "mantissa/text/reward/rule.h"

namespace mantissa::reward {

struct RuleKind {
  std::string_view name;      // in rl.reward, alone or as "name:ARGUMENT"
  std::string_view argument;  // "PATTERN"; empty: none
  // In docs/post-training.md: the reward, its parts, and the field that a row needs.
  std::string_view reward, parts, field;
  /// Returns the rule. Throws ConfigError for an invalid argument. Starts nothing, except the program. Null
  /// for "model".
  std::unique_ptr<Rule> (*make)(std::string_view argument, const RuleOptions& options);
  /// Throws ConfigError for an invalid argument, and starts nothing.
  void (*check)(std::string_view argument);

  /// Returns the value of rl.reward: kk, regex:PATTERN.
  std::string written() const;
};

std::span<const RuleKind> rule_kinds();

/// Returns 'kk, exact, "regex:PATTERN" or "program:COMMAND"', for messages and help. `of_run`: with model,
/// which only a run has.
std::string rules_text(bool of_run = true);

/// Knights and Knaves, by text::kk_reward() of the row's `solution_text_format`. The parts are `format` and
/// `answer`. Unless `marked`, "Assistant:" is put before a response.
std::unique_ptr<Rule> kk_rule(bool marked);

/// 1 if answer_in(response) equals the row's reference_answer(), else 0. The part is `match`.
std::unique_ptr<Rule> exact_rule();

/// 1 if the pattern, in the syntax of PCRE2, matches anywhere in the response, else 0. "{answer}" in it, not
/// after a backslash, stands for the characters of the row's reference_answer(). Letters, digits and word
/// boundaries are Unicode's; bytes that are not UTF-8 match nothing. The parts are `match` and `over_limit`,
/// which is 1 if the search was given up after kMostSteps steps or with kMostHeap bytes: the reward is then
/// 0. Throws ConfigError for an invalid pattern.
std::unique_ptr<Rule> regex_rule(std::string_view pattern);
inline constexpr unsigned kMostSteps = 1'000'000;
inline constexpr unsigned kMostHeap = 64U << 20;

/// Throws ConfigError for a command that is empty or has a NUL byte.
void check_command(std::string_view command);
/// Sends the samples to a program and reads its rewards (docs/post-training.md, "Programs").
std::unique_ptr<Rule> program_rule(std::string command, const RuleOptions& options);

}  // namespace mantissa::reward
