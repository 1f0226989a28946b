// The numbers that a rollout's rewards and log-probabilities give.
#include "mantissa/train/rl/scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace mantissa::rl {
namespace {

Sampled sample(double reward, std::int64_t tokens) {
  Sampled s;
  s.reward = reward;
  s.tokens = tokens;
  return s;
}

std::map<std::string, double> by_name(const std::vector<objective::Metric>& metrics) {
  std::map<std::string, double> all;
  for (const auto& [name, value] : metrics) all[name] = value;
  return all;
}

TEST(Scores, AreMeansOverTheSamplesThatHaveThem) {
  std::vector<Sampled> samples = {sample(1, 4), sample(0, 2), sample(3, 9), sample(0, 1)};
  samples[0].parts = {{"letters", 6}}, samples[2].parts = {{"letters", 2}};
  samples[1].right = false, samples[2].right = true, samples[2].people = 2;
  samples[3].truncated = true;
  const auto metrics = by_name(metrics_of(samples, 2));
  EXPECT_EQ(metrics.at("reward"), 1);
  EXPECT_EQ(metrics.at("reward_letters"), 4);
  EXPECT_EQ(metrics.at("accuracy"), 0.5);
  EXPECT_EQ(metrics.at("accuracy_2_people"), 1);
  EXPECT_EQ(metrics.at("response_length"), 4);
  EXPECT_EQ(metrics.at("response_length_max"), 9);
  EXPECT_EQ(metrics.at("truncated_share"), 0.25);
  EXPECT_DOUBLE_EQ(metrics.at("rewards_std"), std::sqrt(2.0));  // (0 + 1 + 4 + 1) / 3
  EXPECT_EQ(metrics.at("prompts"), 2);
}

TEST(Scores, PromptsWithEqualRewardsAreCounted) {
  const std::vector<Sampled> samples = {sample(1, 1), sample(1, 1), sample(0, 1), sample(1, 1)};
  EXPECT_EQ(equal_reward_share(samples, 2), 0.5);
  EXPECT_EQ(equal_reward_share(samples, 1), 1);
  EXPECT_EQ(equal_reward_share(samples, 4), 0);
}

TEST(Scores, ASamplerWithTheBitsOfTrainingHasNoMismatch) {
  Response r{{1, 2, 3, 4}, 2, 0, 0, 1, {-1.5, -0.25}, {-1.5, -0.25}};
  const auto equal = by_name(mismatch({0, {r, r}}));
  EXPECT_EQ(equal.at("rollout_kl"), 0);
  EXPECT_EQ(equal.at("rollout_ratio_min"), 1);
  EXPECT_EQ(equal.at("rollout_ratio_max"), 1);
  EXPECT_EQ(equal.at("effective_sample_share"), 1);
  Response other = r;
  other.old_log_probs[0] += std::log(2.0);  // training gives the token twice the probability
  const auto differs = by_name(mismatch({0, {r, other}}));
  EXPECT_NEAR(differs.at("rollout_kl"), (2 - 1 - std::log(2.0)) / 4, 4e-16);
  EXPECT_NEAR(differs.at("rollout_ratio_max"), 2, 1e-15);
  // (1 + 2)² / (2 · (1 + 4))
  EXPECT_NEAR(differs.at("effective_sample_share"), 0.9, 1e-15);
}

}  // namespace
}  // namespace mantissa::rl
