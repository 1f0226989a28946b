#include "mantissa/train/rl/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "mantissa/setup/objective/kl.h"
#include "mantissa/setup/objective/rl_loss.h"

namespace mantissa::rl {
namespace {

/// A mean over the samples that have the number.
struct Mean {
  double sum = 0, count = 0;
  void add(double x) { sum += x, count += 1; }
  double value() const { return sum / count; }
};

/// Returns the unbiased standard deviation of the rewards around their mean, 0 for one.
double deviation(std::span<const Sampled> samples, double mean) {
  double sum = 0;
  for (const Sampled& s : samples) sum += (s.reward - mean) * (s.reward - mean);
  return samples.size() < 2 ? 0 : std::sqrt(sum / static_cast<double>(samples.size() - 1));
}

}  // namespace

std::vector<objective::Metric> metrics_of(std::span<const Sampled> samples, std::int64_t per_prompt) {
  Mean reward, accuracy, length, truncated;
  std::map<std::string, Mean> parts;
  std::map<std::int64_t, Mean> by_people;
  std::int64_t longest = 0;
  for (const Sampled& s : samples) {
    reward.add(s.reward);
    for (const auto& [name, value] : s.parts) parts[name].add(value);
    if (s.right) {
      accuracy.add(*s.right ? 1 : 0);
      if (s.people > 0) by_people[s.people].add(*s.right ? 1 : 0);
    }
    length.add(static_cast<double>(s.tokens));
    longest = std::max(longest, s.tokens);
    truncated.add(s.truncated ? 1 : 0);
  }
  std::vector<objective::Metric> all = {{"reward", reward.value()}};
  for (const auto& [name, mean] : parts) all.push_back({"reward_" + name, mean.value()});
  if (accuracy.count > 0) all.push_back({"accuracy", accuracy.value()});
  for (const auto& [people, mean] : by_people)
    all.push_back({fmt::format("accuracy_{}_people", people), mean.value()});
  all.push_back({"response_length", length.value()});
  all.push_back({"response_length_max", static_cast<double>(longest)});
  all.push_back({"truncated_share", truncated.value()});
  all.push_back({"rewards_std", deviation(samples, reward.value())});
  all.push_back({"prompts", static_cast<double>(samples.size()) / static_cast<double>(per_prompt)});
  return all;
}

double equal_reward_share(std::span<const Sampled> responses, std::int64_t samples) {
  Mean equal;
  const auto n = static_cast<std::size_t>(samples);
  for (std::size_t first = 0; first < responses.size(); first += n) {
    const std::span<const Sampled> group = responses.subspan(first, n);
    const bool same =
        std::ranges::all_of(group, [&](const Sampled& s) { return s.reward == group.front().reward; });
    equal.add(same ? 1 : 0);
  }
  return equal.value();
}

double mean_entropy(std::span<const rollout::Generation> generations) {
  Mean mean;
  for (const rollout::Generation& g : generations) {
    for (const double entropy : g.entropies) mean.add(entropy);
  }
  return mean.count == 0 ? 0 : mean.value();
}

double mean_kl(const Experience& experience, objective::Kl estimator) {
  Mean mean;
  for (const Response& r : experience.responses) {
    for (std::size_t t = 0; t < r.old_log_probs.size(); ++t)
      mean.add(objective::kl_term(estimator, r.old_log_probs[t], r.ref_log_probs[t]).value);
  }
  return mean.count == 0 ? 0 : mean.value();
}

std::vector<objective::Metric> mismatch(const Experience& experience) {
  objective::Weights tokens, responses;
  Mean kl;
  for (const Response& r : experience.responses) {
    double sum = 0;
    for (std::size_t t = 0; t < r.old_log_probs.size(); ++t) {
      const double difference = r.old_log_probs[t] - r.rollout_log_probs[t];
      tokens.add(std::exp(difference));
      kl.add(std::expm1(difference) - difference);
      sum += difference;
    }
    responses.add(std::exp(sum));
  }
  return {{"rollout_kl", kl.value()},
          {"rollout_ratio_min", tokens.min},
          {"rollout_ratio_max", tokens.max},
          {"effective_sample_share", responses.effective_share()}};
}

}  // namespace mantissa::rl
