// The estimators of the divergence: values, derivatives, the bound of k3.
#include "mantissa/setup/objective/kl.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mantissa::objective {
namespace {

constexpr Kl kEstimators[] = {Kl::k1, Kl::k2, Kl::k3};

TEST(Kl, EstimatorsAreThoseOfSchulman) {
  const double p = -1.25, q = -0.5;  // q is the reference
  EXPECT_EQ(kl_term(Kl::k1, p, q).value, -0.75);
  EXPECT_EQ(kl_term(Kl::k2, p, q).value, 0.28125);
  EXPECT_NEAR(kl_term(Kl::k3, p, q).value, std::exp(0.75) - 1 - 0.75, 1e-15);
  EXPECT_EQ(kl_term(Kl::none, p, q).value, 0);
  EXPECT_EQ(kl_term(Kl::none, p, q).derivative, 0);
}

TEST(Kl, OfEqualPoliciesIsZero) {
  for (const Kl estimator : kEstimators) EXPECT_EQ(kl_term(estimator, -3.5, -3.5).value, 0);
}

TEST(Kl, DerivativesAreThoseOfTheValues) {
  constexpr double kStep = 1e-5;
  for (const Kl estimator : kEstimators) {
    for (double d = -4; d <= 4; d += 0.37) {
      const double above = kl_term(estimator, d + kStep, 0).value,
                   below = kl_term(estimator, d - kStep, 0).value;
      // h² times a third derivative of at most e^2.6, and 2^-52 of a value of at most 10 over 2 h.
      EXPECT_NEAR(kl_term(estimator, d, 0).derivative, (above - below) / (2 * kStep), 1e-9) << d;
    }
  }
}

TEST(Kl, K3IsAtMostTenAndHasNoDerivativeThere) {
  for (const double q : {3.0, 20.0, 800.0}) {
    const KlTerm term = kl_term(Kl::k3, 0, q);
    EXPECT_EQ(term.value, 10) << q;
    EXPECT_EQ(term.derivative, 0) << q;
  }
  EXPECT_LT(kl_term(Kl::k3, 0, 2.6).value, 10);
  EXPECT_EQ(kl_term(Kl::k3, 11, 0).value, 10);  // e^-11 − 1 + 11 is above 10
  EXPECT_EQ(kl_term(Kl::k1, 0, 20).value, -20);
}

TEST(Kl, K3OfClosePoliciesKeepsItsDigits) {
  // The error of e^−d − 1 is 2^-53 d; that of e^−d would be 2^-53.
  const double d = 1e-6;
  EXPECT_NEAR(kl_term(Kl::k3, d, 0).value, 0.5 * d * d - d * d * d / 6, 0x1p-52 * d);
  EXPECT_NEAR(kl_term(Kl::k3, d, 0).derivative, d - 0.5 * d * d, 0x1p-52 * d + d * d * d);
}

}  // namespace
}  // namespace mantissa::objective
