// Advantages: values by hand, groups of all sizes, masks.
#include "mantissa/setup/objective/advantages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace mantissa::objective {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Four rows of three tokens, of two prompts.
struct Example {
  std::vector<float> mask = {1, 1, 1, 1, 1, 0, 1, 0, 0, 1, 1, 1};
  std::vector<double> rewards = {3, 1, -1, 0};
  std::vector<std::int64_t> groups = {7, 7, -2, -2};
  std::vector<double> old_values = {0.5, 0.25, 1, 0, 2, kNan, 1, kNan, kNan, 0.125, 0.5, 4};
  std::vector<double> old_log_probs = {}, ref_log_probs = {};

  Advantages of(Algorithm algorithm, RlSettings s = {}) const {
    s.algorithm = algorithm;
    return advantages({.rows = 4,
                       .length = 3,
                       .mask = mask,
                       .rewards = rewards,
                       .groups = groups,
                       .old_values = old_values,
                       .old_log_probs = old_log_probs,
                       .ref_log_probs = ref_log_probs},
                      s);
  }
};

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-14) << i;
}

TEST(Advantages, OfGroupsCompareWithTheMean) {
  const std::vector<double> want = {1, 1, 1, -1, -1, 0, -0.5, 0, 0, 0.5, 0.5, 0.5};
  expect_near(Example().of(Algorithm::dr_grpo).advantages, want);
  expect_near(Example().of(Algorithm::reinforce_pp_baseline).advantages, want);
  expect_near(Example().of(Algorithm::dr_grpo).returns, want);
}

TEST(Advantages, OfGrpoAreDividedByTheUnbiasedDeviation) {
  const double first = 1 / (std::sqrt(2.0) + 1e-6), second = 0.5 / (std::sqrt(0.5) + 1e-6);
  expect_near(Example().of(Algorithm::grpo).advantages,
              {first, first, first, -first, -first, 0, -second, 0, 0, second, second, second});
}

TEST(Advantages, OfRlooLeaveTheSampleOutOfItsBaseline) {
  Example e;
  e.groups = {1, 1, 1, 2};
  // 3 − (1 − 1) / 2, 1 − (3 − 1) / 2, −1 − (3 + 1) / 2; the fourth row is alone.
  expect_near(e.of(Algorithm::rloo).advantages, {3, 3, 3, 0, 0, 0, -3, 0, 0, 0, 0, 0});
}

TEST(Advantages, OfAGroupOfOneAreZero) {
  Example e;
  e.groups = {1, 2, 3, 4};
  for (const Algorithm a :
       {Algorithm::grpo, Algorithm::dr_grpo, Algorithm::rloo, Algorithm::reinforce_pp_baseline})
    expect_near(e.of(a).advantages, std::vector<double>(12));
}

TEST(Advantages, OfEqualRewardsAreExactlyZero) {
  Example e;
  e.rewards = {0.1, 0.1, 0.1, 0.1};
  e.groups = {5, 5, 5, 5};
  for (const Algorithm a : {Algorithm::grpo, Algorithm::dr_grpo, Algorithm::rloo}) {
    for (const double advantage : e.of(a).advantages) EXPECT_NEAR(advantage, 0, 1e-9);
  }
}

TEST(Advantages, OfGaeWithoutDiscountAreTheReturnMinusTheValue) {
  const Advantages got = Example().of(Algorithm::ppo);
  expect_near(got.returns, {3, 3, 3, 1, 1, 0, -1, 0, 0, 0, 0, 0});
  expect_near(got.advantages, {2.5, 2.75, 2, 1, -1, 0, -2, 0, 0, -0.125, -0.5, -4});
}

TEST(Advantages, OfGaeFollowTheRecursion) {
  RlSettings s;
  s.gamma = 0.5;
  s.lambda = 0.25;
  // δ = [0 + 0.5 · 0.25 − 0.5, 0 + 0.5 · 1 − 0.25, 3 − 1] = [−0.375, 0.25, 2], and γλ = 0.125
  const Advantages got = Example().of(Algorithm::ppo, s);
  EXPECT_NEAR(got.advantages[2], 2, 1e-15);
  EXPECT_NEAR(got.advantages[1], 0.5, 1e-15);
  EXPECT_NEAR(got.advantages[0], -0.3125, 1e-15);
  EXPECT_NEAR(got.returns[0], 0.1875, 1e-15);
}

TEST(Advantages, OfGaeSkipTokensThatDoNotCount) {
  RlSettings s;
  s.algorithm = Algorithm::ppo;
  s.gamma = 0.9;
  s.lambda = 0.8;
  const std::vector<float> gaps = {0, 1, 0, 0, 1, 1}, dense = {1, 1, 1};
  const std::vector<double> rewards = {kNan, 1, kNan, kNan, -2, 0.5}, few_rewards = {1, -2, 0.5};
  const std::vector<double> values = {kNan, 0.3, kNan, kNan, 0.1, 0.7}, few_values = {0.3, 0.1, 0.7};
  const Advantages with =
      advantages({.rows = 1, .length = 6, .mask = gaps, .rewards = rewards, .old_values = values}, s);
  const Advantages without = advantages(
      {.rows = 1, .length = 3, .mask = dense, .rewards = few_rewards, .old_values = few_values}, s);
  EXPECT_EQ(with.advantages, (std::vector<double>{0, without.advantages[0], 0, 0, without.advantages[1],
                                                  without.advantages[2]}));
}

TEST(Advantages, OfReinforceAreDiscountedReturns) {
  RlSettings s;
  s.gamma = 0.5;
  expect_near(Example().of(Algorithm::reinforce_pp, s).returns, {0.75, 1.5, 3, 0.5, 1, 0, -1, 0, 0, 0, 0, 0});
}

TEST(Advantages, OfReinforceBeginAgainAfterATokenThatDoesNotCount) {
  RlSettings s;
  s.algorithm = Algorithm::reinforce_pp;
  const std::vector<float> mask = {1, 1, 0, 1};
  const std::vector<double> rewards = {1, 2, kNan, 4};
  EXPECT_EQ(advantages({.rows = 1, .length = 4, .mask = mask, .rewards = rewards}, s).returns,
            (std::vector<double>{3, 2, 0, 4}));
}

TEST(Advantages, WhitenedHaveMeanZeroAndUnbiasedVarianceOne) {
  RlSettings s;
  s.whiten = true;
  const Example e;
  for (const Algorithm a : {Algorithm::ppo, Algorithm::reinforce_pp, Algorithm::reinforce_pp_baseline}) {
    const std::vector<double> got = e.of(a, s).advantages;
    double sum = 0, squares = 0, count = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (e.mask[i] == 0) {
        EXPECT_EQ(got[i], 0);
        continue;
      }
      sum += got[i];
      squares += got[i] * got[i];
      count += 1;
    }
    EXPECT_NEAR(sum, 0, 1e-13);
    EXPECT_NEAR(squares / (count - 1), 1, 1e-7);  // ε = 1e-8 beside a variance of about 1
  }
}

TEST(Advantages, WhitenedOfOneTokenAreZero) {
  RlSettings s;
  s.algorithm = Algorithm::reinforce_pp;
  s.whiten = true;
  const std::vector<float> mask = {0, 1};
  const std::vector<double> rewards = {5};
  EXPECT_EQ(advantages({.rows = 1, .length = 2, .mask = mask, .rewards = rewards}, s).advantages,
            (std::vector<double>{0, 0}));
}

TEST(Advantages, ReturnsAreNotWhitened) {
  RlSettings s;
  s.whiten = true;
  for (const Algorithm a : {Algorithm::ppo, Algorithm::reinforce_pp, Algorithm::reinforce_pp_baseline})
    EXPECT_EQ(Example().of(a, s).returns, Example().of(a).returns);
}

TEST(Advantages, OfRewardsPerTokenCompareTheirSums) {
  Example e;
  e.rewards = {1, 1, 1, 2, -1, kNan, -1, kNan, kNan, 5, -5, 0};  // sums 3, 1, −1, 0 as in the example
  for (const Algorithm a : {Algorithm::grpo, Algorithm::dr_grpo, Algorithm::rloo})
    EXPECT_EQ(e.of(a).advantages, Example().of(a).advantages);
}

TEST(Advantages, ContainTheDivergenceIfItIsInTheReward) {
  Example e;
  e.old_log_probs = {-1, -2, -3, -1, -1, kNan, -1, kNan, kNan, -1, -1, -1};
  e.ref_log_probs = {-2, -2, -1, -1, -1, kNan, -1, kNan, kNan, -1, -1, -1};
  RlSettings s;
  s.kl = Kl::k1;
  s.kl_in = KlIn::reward;
  s.kl_coef = 0.5;
  // rewards of the first row: −0.5, 0, 3 + 1
  const Advantages got = e.of(Algorithm::reinforce_pp, s);
  EXPECT_EQ(got.returns[0], 3.5);
  EXPECT_EQ(got.returns[1], 4);
  EXPECT_EQ(got.returns[2], 4);
  EXPECT_EQ(e.of(Algorithm::dr_grpo, s).advantages[0], 1.25);  // the sums 3.5 and 1
  s.kl_in = KlIn::loss;
  EXPECT_EQ(e.of(Algorithm::reinforce_pp, s).returns, Example().of(Algorithm::reinforce_pp).returns);
}

TEST(Advantages, LeaveOutRowsWithoutTokens) {
  Example e;
  const Example all = e;
  e.mask = {1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1};
  e.rewards[2] = kNan;
  RlSettings s;
  s.whiten = true;
  for (const Algorithm a : {Algorithm::grpo, Algorithm::dr_grpo, Algorithm::rloo,
                            Algorithm::reinforce_pp_baseline, Algorithm::ppo, Algorithm::reinforce_pp}) {
    const std::vector<double> got = e.of(a, s).advantages;
    for (const double advantage : got) EXPECT_TRUE(std::isfinite(advantage));
    EXPECT_EQ(got[6], 0);
  }
  EXPECT_EQ(e.of(Algorithm::dr_grpo).advantages[9], 0);  // now alone
  EXPECT_EQ(all.of(Algorithm::dr_grpo).advantages[9], 0.5);
}

TEST(Advantages, IgnoreWhatTheMaskHides) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  for (int round = 0; round < 50; ++round) {
    Example clean;
    for (double& v : clean.old_values) v = normal(random);
    clean.rewards.assign(12, 0);
    clean.old_log_probs.assign(12, 0);
    clean.ref_log_probs.assign(12, 0);
    for (std::size_t i = 0; i < 12; ++i) {
      clean.mask[i] = random() % 3 != 0 ? 1 : 0;
      clean.rewards[i] = normal(random);
      clean.old_log_probs[i] = normal(random);
      clean.ref_log_probs[i] = normal(random);
    }
    Example dirty = clean;
    for (std::size_t i = 0; i < 12; ++i) {
      if (clean.mask[i] != 0) continue;
      const double bad = random() % 2 == 0 ? kNan : std::numeric_limits<double>::infinity();
      dirty.rewards[i] = dirty.old_values[i] = dirty.old_log_probs[i] = dirty.ref_log_probs[i] = bad;
    }
    RlSettings s;
    s.whiten = round % 2 == 0;
    s.kl_in = KlIn::reward;
    s.kl_coef = 0.1;
    for (const Algorithm a : {Algorithm::grpo, Algorithm::dr_grpo, Algorithm::rloo,
                              Algorithm::reinforce_pp_baseline, Algorithm::ppo, Algorithm::reinforce_pp}) {
      EXPECT_EQ(dirty.of(a, s).advantages, clean.of(a, s).advantages) << round;
      EXPECT_EQ(dirty.of(a, s).returns, clean.of(a, s).returns) << round;
    }
  }
}

}  // namespace
}  // namespace mantissa::objective
