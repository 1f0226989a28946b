// Losses of answers with a label: values, gradients against finite differences, extremes.
#include "mantissa/setup/objective/kto.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace mantissa::objective {
namespace {

TEST(KtoLoss, OfTheReferenceIsHalfItsWeight) {
  const KtoSettings s{.beta = 0.1, .desirable_weight = 1.5, .undesirable_weight = 0.5};
  EXPECT_EQ(kto_loss(0, true, 0, s).loss, 0.75);
  EXPECT_EQ(kto_loss(0, false, 0, s).loss, 0.25);
  EXPECT_DOUBLE_EQ(kto_loss(0, true, 0, s).derivative, -1.5 * 0.1 / 4);
  EXPECT_DOUBLE_EQ(kto_loss(0, false, 0, s).derivative, 0.5 * 0.1 / 4);
}

/// A larger log-probability lowers the loss of a desirable answer and raises that of an undesirable one; the
/// divergence moves the point where both are one half.
TEST(KtoLoss, IsTheSigmoidOfTheDistanceFromTheDivergence) {
  const KtoSettings s{.beta = 0.3};
  for (const double r : {-40.0, -2.0, 0.5, 7.0}) {
    for (const double kl : {0.0, 1.25}) {
      EXPECT_NEAR(kto_loss(r, true, kl, s).loss, 1 - 1 / (1 + std::exp(-0.3 * (r - kl))), 1e-15);
      EXPECT_NEAR(kto_loss(r, false, kl, s).loss, 1 - 1 / (1 + std::exp(-0.3 * (kl - r))), 1e-15);
    }
  }
}

TEST(KtoLoss, GradientsEqualFiniteDifferences) {
  constexpr double kStep = 1e-5, kBound = 1e-9;
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (int round = 0; round < 100; ++round) {
    const KtoSettings s{.beta = 0.5, .desirable_weight = 1.2, .undesirable_weight = 0.8};
    const double r = 5 * normal(random), kl = std::abs(normal(random));
    const bool desirable = round % 2 == 0;
    EXPECT_NEAR(kto_loss(r, desirable, kl, s).derivative,
                (kto_loss(r + kStep, desirable, kl, s).loss - kto_loss(r - kStep, desirable, kl, s).loss) /
                    (2 * kStep),
                kBound);
  }
}

TEST(KtoLoss, OfExtremesIsFinite) {
  for (const double r : {-1e300, 1e300}) {
    for (const bool desirable : {true, false}) {
      const AnswerLoss loss = kto_loss(r, desirable, 0, {});
      EXPECT_EQ(loss.loss, (r > 0) == desirable ? 0 : 1);
      EXPECT_EQ(loss.derivative, 0);
    }
  }
}

}  // namespace
}  // namespace mantissa::objective
