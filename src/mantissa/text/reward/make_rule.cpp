// The rule that the text of rl.reward names.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"
#include "mantissa/text/reward/rules.h"

namespace mantissa::reward {
namespace {

constexpr std::string_view kProgram = "program", kModel = "model";

constexpr RuleKind kKinds[] = {
    {"kk", "",
     "Logic-RL's, 3 to −3 ([data.md, \"How an answer is scored\"](data.md#how-an-answer-is-scored))",
     "`format`, `answer`", "`solution_text_format`",
     [](std::string_view, const RuleOptions& o) { return kk_rule(o.marked); }, nullptr},
    {"exact", "", "1 if the answer equals the right one, else 0", "`match`", "the right answer",
     [](std::string_view, const RuleOptions&) { return exact_rule(); }, nullptr},
    {"regex", "PATTERN", "1 if the response matches, else 0", "`match`, `over_limit`",
     "the right answer, if the pattern has `{answer}`",
     [](std::string_view pattern, const RuleOptions&) { return regex_rule(pattern); },
     [](std::string_view pattern) { regex_rule(pattern); }},
    {kModel, "", "the score of the reward model `rl.reward_model` ([below](#a-reward-model-as-the-reward))",
     "–", "any", nullptr, nullptr},
    {kProgram, "COMMAND", "what a program says", "what it says", "any",
     [](std::string_view command, const RuleOptions& o) { return program_rule(std::string(command), o); },
     check_command},
};

/// A kind and its argument.
struct Named {
  const RuleKind& kind;
  std::string_view argument;
};

/// Returns the kind that `rule` names. Throws ConfigError if there is none.
Named named(std::string_view rule) {
  const std::size_t colon = rule.find(':');
  const std::string_view name = rule.substr(0, colon);
  const auto* kind = std::ranges::find(kKinds, name, &RuleKind::name);
  const bool known = kind != std::end(kKinds);
  if (known && kind->argument.empty() == (colon == std::string_view::npos))
    return {*kind, colon == std::string_view::npos ? std::string_view() : rule.substr(colon + 1)};
  if (name == kModel) throw ConfigError("write \"model\", and the reward model's path as rl.reward_model");
  throw ConfigError(fmt::format("expected {}{}", rules_text(),
                                known ? "" : did_you_mean(name, names_of(kKinds, &RuleKind::name))));
}

}  // namespace

std::string RuleKind::written() const {
  return argument.empty() ? std::string(name) : fmt::format("{}:{}", name, argument);
}

std::span<const RuleKind> rule_kinds() {
  return kKinds;
}

std::string rules_text(bool of_run) {
  std::string text;
  for (const RuleKind& kind : kKinds) {
    if (is_model(kind.name) && !of_run) continue;
    const char* between = &kind == kKinds ? "" : &kind == std::end(kKinds) - 1 ? " or " : ", ";
    text += between + (kind.argument.empty() ? std::string(kind.name) : in_quotes(kind.written()));
  }
  return text;
}

bool is_model(std::string_view rule) {
  return rule == kModel;
}

bool runs_program(std::string_view rule) {
  return rule.substr(0, rule.find(':')) == kProgram && rule.size() > kProgram.size();
}

void check_command(std::string_view command) {
  if (trimmed(command).empty()) {
    throw ConfigError(
        "the command is empty; write \"program:COMMAND\", such as \"program:python3 score.py\"");
  }
  if (command.find('\0') != std::string_view::npos) throw ConfigError("the command has a NUL byte");
}

void check_rule(const std::string& rule) {
  const auto [kind, argument] = named(rule);
  if (kind.check != nullptr) kind.check(argument);
}

std::unique_ptr<Rule> make_rule(const std::string& rule, const RuleOptions& options) {
  try {
    check_rule(rule);
  } catch (const ConfigError& e) {
    throw ConfigError(fmt::format("reward {}: {}", in_quotes(rule), e.what()));
  }
  if (is_model(rule)) {
    throw ConfigError(
        "reward \"model\": scores the ids of a run's responses, not texts. Fix: train with train.objective = \"rl\" "
        "and rl.reward_model, or choose another rule");
  }
  const auto [kind, argument] = named(rule);
  return kind.make(argument, options);
}

}  // namespace mantissa::reward
