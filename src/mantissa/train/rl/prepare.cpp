// What reinforcement learning needs before its task: the permission to run a program, the rule, the prompts.
#include <cstdint>
#include <memory>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/text/reward/rule.h"
#include "mantissa/train/rl/task.h"

namespace mantissa::rl {

void check_allowed(const config::RunConfig& config) {
  if (config.allow_programs || config.train.objective != "rl" || !reward::runs_program(config.rl.reward))
    return;
  throw ConfigError(
      "rl.reward = {}: expected a permission to run this command, which the config names. Fix: read the "
      "command, and then add --allow-programs",
      in_quotes(config.rl.reward));
}

Prepared prepare(config::RunConfig config, const model::ModelConfig& model, const MakeRule& make_rule) {
  constexpr std::int64_t kAny = std::int64_t{1} << 24;
  Prepared p{std::move(config), nullptr, {}};
  const bool chosen = p.config.data.sequence_length > 0;
  if (!chosen) p.config.data.sequence_length = kAny;
  data::CheckRow check;
  if (!make_rule) reward::check_rule(p.config.rl.reward);
  const bool any_row = reward::runs_program(p.config.rl.reward) || reward::is_model(p.config.rl.reward);
  if (!make_rule && !any_row) {
    check = [rule = std::shared_ptr<reward::Rule>(reward::make_rule(p.config.rl.reward))](
                const nlohmann::ordered_json& row, const std::string& where) { rule->check_row(row, where); };
  }
  p.prompts = std::make_shared<const data::PromptSet>(p.config, model, check, &p.notes);
  if (!chosen) p.config.data.sequence_length = p.prompts->longest() + p.config.rl.max_new_tokens;
  return p;
}

}  // namespace mantissa::rl
