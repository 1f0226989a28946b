// Losses of pairs: values, gradients against finite differences, extremes.
#include "mantissa/setup/objective/preference.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

namespace mantissa::objective {
namespace {

TEST(Preference, DpoOfEqualAnswersIsLogTwo) {
  const PairLoss loss = preference_loss({-3, -5, -3, -5, 2}, {});
  EXPECT_DOUBLE_EQ(loss.loss, std::log(2));
  EXPECT_DOUBLE_EQ(loss.d_chosen, -0.05);
  EXPECT_DOUBLE_EQ(loss.d_rejected, 0.05);
}

TEST(Preference, GradientsEqualFiniteDifferences) {
  constexpr double kStep = 1e-5, kBound = 1e-7;  // ipo: losses of up to 1000, whose 2^-52 over 2 h is 1e-8
  std::mt19937 random(8);
  std::normal_distribution<double> normal;
  for (int round = 0; round < 200; ++round) {
    PreferenceSettings s;
    s.beta = round % 2 == 0 ? 0.1 : 0.5;
    using enum PreferenceLoss;
    s.loss = std::array{sigmoid, ipo, simpo, orpo, sigmoid}[round % 5];
    s.gamma = round % 7 == 0 ? 0.8 : 0;
    s.label_smoothing = round % 3 == 0 ? 0.2 : 0;
    s.nll_coef = round % 4 == 0 ? 0.7 : 0;
    const auto log_prob = [&] { return -0.01 - std::abs(9 + 5 * normal(random)); };
    const PreferencePair pair{log_prob(), log_prob(), log_prob(), log_prob(), 7, 5};
    const auto slope = [&](double PreferencePair::*input) {
      PreferencePair above = pair, below = pair;
      above.*input += kStep;
      below.*input -= kStep;
      return (preference_loss(above, s).loss - preference_loss(below, s).loss) / (2 * kStep);
    };
    const PairLoss loss = preference_loss(pair, s);
    EXPECT_NEAR(loss.d_chosen, slope(&PreferencePair::chosen), kBound) << round;
    EXPECT_NEAR(loss.d_rejected, slope(&PreferencePair::rejected), kBound) << round;
    const double c = normal(random), r = normal(random), margin = normal(random);
    const PairLoss reward = reward_loss(c, r, margin);
    EXPECT_NEAR(
        reward.d_chosen,
        (reward_loss(c + kStep, r, margin).loss - reward_loss(c - kStep, r, margin).loss) / (2 * kStep),
        1e-9);
    EXPECT_EQ(reward.d_rejected, -reward.d_chosen);
  }
}

TEST(Preference, LossesOfExtremesAreFinite) {
  EXPECT_EQ(reward_loss(1000, -1000).loss, 0);
  EXPECT_EQ(reward_loss(-1000, 1000).loss, 2000);
  EXPECT_EQ(reward_loss(-1000, 1000).d_chosen, -1);
  PreferenceSettings s;
  s.label_smoothing = 0.25;
  EXPECT_DOUBLE_EQ(preference_loss({1e5, 0, 0, 0, 1}, s).loss, 2500);
}

TEST(Preference, MarginMovesTheScore) {
  EXPECT_EQ(reward_loss(2, 1, 0.5).loss, reward_loss(1.5, 1).loss);
}

TEST(Preference, IpoHasItsMinimumAtHalfTheInverseOfBeta) {
  PreferenceSettings s;
  s.loss = PreferenceLoss::ipo;
  const PairLoss loss = preference_loss({5, 0, 0, 0, 1}, s);
  EXPECT_EQ(loss.loss, 0);
  EXPECT_EQ(loss.d_chosen, 0);
}

TEST(Preference, SimpoComparesMeansOverTokensWithAMargin) {
  const PreferenceSettings s{.loss = PreferenceLoss::simpo, .beta = 2, .gamma = 0.5};
  // 2 · (−4/4 + 6/3) − 0.5 = 1.5
  const PairLoss loss = preference_loss({-4, -6, 0, 0, 4, 3}, s);
  EXPECT_DOUBLE_EQ(loss.loss, std::log1p(std::exp(-1.5)));
  EXPECT_DOUBLE_EQ(loss.d_chosen, -2.0 / 4 / (1 + std::exp(1.5)));
  EXPECT_DOUBLE_EQ(loss.d_rejected, 2.0 / 3 / (1 + std::exp(1.5)));
  EXPECT_EQ(implicit_rewards({-4, -6, 0, 0, 4, 3}, s), std::pair(-2.0, -4.0));
}

TEST(Preference, OrpoAddsTheOddsToTheLikelihood) {
  const PreferenceSettings s{.loss = PreferenceLoss::orpo, .beta = 0.25};
  // Probabilities 1/2 and 1/4 of a token have the odds 1 and 1/3: −log σ(log 3) = log(4/3).
  const PairLoss loss = preference_loss({2 * std::log(0.5), 3 * std::log(0.25), 0, 0, 2, 3}, s);
  EXPECT_NEAR(loss.loss, std::log(2) + 0.25 * std::log(4.0 / 3), 1e-15);
  const PairLoss certain = preference_loss({0, -1e5, 0, 0, 2, 3}, s);
  EXPECT_TRUE(std::isfinite(certain.loss) && std::isfinite(certain.d_chosen)) << certain.d_chosen;
  EXPECT_NEAR(certain.loss, 0, 1e-15);
}

TEST(Preference, LikelihoodTermIsTheMeanOverTheChosenTokens) {
  PreferenceSettings plain, with;
  with.nll_coef = 0.5;
  const PreferencePair pair{-8, -4, -6, -5, 4};
  EXPECT_DOUBLE_EQ(preference_loss(pair, with).loss - preference_loss(pair, plain).loss, 1);
  EXPECT_DOUBLE_EQ(preference_loss(pair, with).d_chosen - preference_loss(pair, plain).d_chosen, -0.125);
  EXPECT_EQ(preference_loss(pair, with).d_rejected, preference_loss(pair, plain).d_rejected);
}

TEST(Preference, SumsSkipWhatTheMaskHides) {
  const std::vector<double> values = {1, NAN, 2, INFINITY};
  const std::vector<float> mask = {1, 0, 1, 0};
  EXPECT_EQ(masked_sum(values, mask), 3);
}

}  // namespace
}  // namespace mantissa::objective
