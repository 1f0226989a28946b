// A reward function of a program that uses the library, as a rule of rl.
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "mantissa/app/api/internal.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/text/reward/rule.h"

namespace mantissa::api {
namespace {

/// Returns a number of a reward. Throws RunStopped if no f32 holds it.
double finite(double value, std::string_view name) {
  if (!std::isfinite(static_cast<float>(value)))
    throw RunStopped(
        "the reward function gave {} = {}, and every number of a reward must be finite as f32. Fix: mend the "
        "function, and continue the run with TrainOptions::resume",
        name, value);
  return value;
}

class FunctionRule final : public reward::Rule {
 public:
  explicit FunctionRule(RewardFunction function) : function_(std::move(function)) {}

  void check_row(const nlohmann::ordered_json& /*row*/, const std::string& /*where*/) const override {}

  std::vector<reward::Score> score(std::span<const reward::Sample> samples,
                                   const std::stop_token& /*stop*/) override {
    std::vector<std::string> rows;
    for (const reward::Sample& s : samples) rows.push_back(s.row == nullptr ? "{}" : s.row->dump());
    std::vector<ResponseToScore> responses;
    for (std::size_t i = 0; i < samples.size(); ++i)
      responses.push_back({samples[i].prompt, samples[i].response, rows[i]});
    const std::vector<Reward> rewards = function_(responses);
    if (rewards.size() != samples.size())
      throw RunStopped(
          "the reward function gave {} rewards for {} responses. Fix: return one for each, in their order",
          rewards.size(), samples.size());
    std::vector<reward::Score> scores;
    for (const Reward& reward : rewards) {
      reward::Score& score = scores.emplace_back(finite(reward.total, "total"));
      for (const auto& [name, value] : reward.parts) score.parts.emplace_back(name, finite(value, name));
      score.right = reward.right;
    }
    return scores;
  }

 private:
  RewardFunction function_;
};

}  // namespace

std::function<std::unique_ptr<reward::Rule>()> rule_of(const RewardFunction& function) {
  if (!function) return {};
  return [function] { return std::make_unique<FunctionRule>(function); };
}

}  // namespace mantissa::api
