#include "mantissa/app/api/reward.h"

#include <optional>

#include "mantissa/core/base/words.h"
#include "mantissa/text/reward/responses.h"
#include "mantissa/text/reward/rules.h"

namespace mantissa::api {

std::vector<std::string> reward_rules() {
  std::vector<std::string> names = names_of(reward::rule_kinds(), &reward::RuleKind::written);
  std::erase_if(names, reward::is_model);  // it scores ids
  return names;
}

std::string reward_rules_text() {
  return reward::rules_text(false);
}

Rewards score_responses(const std::string& rule, const std::filesystem::path& file,
                        const RewardOptions& options, const std::stop_token& stop) {
  if (reward::runs_program(rule)) reward::check_responses(file.string());  // before it starts
  reward::RuleOptions of_rule;
  of_rule.timeout = options.timeout;
  of_rule.marked = true;
  const std::unique_ptr<reward::Rule> made = reward::make_rule(rule, of_rule);
  Rewards rewards;
  std::optional<std::vector<reward::Score>> scores = reward::score_file(*made, file.string(), stop);
  rewards.interrupted = !scores;
  if (scores) {
    for (reward::Score& s : *scores) rewards.all.push_back({s.total, std::move(s.parts)});
  }
  return rewards;
}

}  // namespace mantissa::api
