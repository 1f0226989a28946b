#include "mantissa/core/numeric/normal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/numeric/reference.h"

namespace mantissa::normal_test {
namespace {

using testing::bits;

constexpr std::size_t kDraws = 1'000'000;

std::vector<double> normals(std::uint64_t first, std::size_t n, SimdTarget target = kBestTarget) {
  const RandomStream stream(5, RandomUse::initial_weights, hash_name("n"), 0);
  std::vector<double> out(n);
  normal_row(stream, first, n, out.data(), target);
  return out;
}

// Means of n independent samples lie within 6 standard errors of the expectation (2e-9 probability of failure
// each).
double six_errors(double variance) {
  return 6 * std::sqrt(variance / kDraws);
}

TEST(Normal, HasTheMomentsAndTailsOfTheStandardNormal) {
  double moments[5] = {};
  double beyond_two = 0;
  for (const double x : normals(0, kDraws)) {
    ASSERT_TRUE(std::isfinite(x));
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(x, k) / kDraws;
    beyond_two += std::fabs(x) > 2 ? 1.0 / kDraws : 0;
  }
  // E x^2k = (2k - 1)!!: 1, 3, 15, 105.
  EXPECT_NEAR(moments[1], 0, six_errors(1));
  EXPECT_NEAR(moments[2], 1, six_errors(3 - 1));
  EXPECT_NEAR(moments[3], 0, six_errors(15));
  EXPECT_NEAR(moments[4], 3, six_errors(105 - 9));
  const double p = std::erfc(std::sqrt(2.0));
  EXPECT_NEAR(beyond_two, p, six_errors(p * (1 - p)));
}

/// Computes √(−2 ln u) cos 2πv of the block's words with MPFR.
double by_mpfr(const PhiloxBlock& words) {
  const auto integer = [](std::uint32_t upper, std::uint32_t lower) {
    return static_cast<double>((std::uint64_t{upper} << 32 | lower) >> 11);
  };
  mpfr_t radius, angle;
  mpfr_inits2(200, radius, angle, nullptr);
  mpfr_set_d(radius, (integer(words[0], words[1]) + 1) * 0x1p-53, MPFR_RNDN);
  mpfr_log(radius, radius, MPFR_RNDN);
  mpfr_mul_si(radius, radius, -2, MPFR_RNDN);
  mpfr_sqrt(radius, radius, MPFR_RNDN);
  mpfr_const_pi(angle, MPFR_RNDN);
  mpfr_mul_d(angle, angle, integer(words[2], words[3]) * 0x1p-52, MPFR_RNDN);
  mpfr_cos(angle, angle, MPFR_RNDN);
  mpfr_mul(radius, radius, angle, MPFR_RNDN);
  const double result = mpfr_get_d(radius, MPFR_RNDN);
  mpfr_clears(radius, angle, nullptr);
  return result;
}

/// Relative errors in units of 2^-52, which is at least an ulp: 0.8 of ln (halved by the root), 0.5 of the
/// root and 0.65 of cos add up to 1.55, at most 3.1 ulp of the result. The rounding of the product adds 0.5
/// ulp.
TEST(Normal, EqualsBoxMullerOfItsBlock) {
  constexpr std::size_t kCount = 20'000;
  const RandomStream stream(5, RandomUse::initial_weights, hash_name("n"), 0);
  const std::vector<double> got = normals(0, kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    const double expected = by_mpfr(stream.block(i));
    const double ulp = std::ldexp(1.0, std::ilogb(expected) - 52);
    ASSERT_NEAR(got[i], expected, 3.6 * ulp) << i;
  }
}

TEST(Normal, DependsOnlyOnItsIndex) {
  const std::vector<double> all = normals(1000, 301);
  for (const SimdTarget target : simd_targets()) {
    for (const std::size_t skip : {0U, 1U, 7U, 64U, 300U}) {
      for (const std::size_t n : {1U, 5U, 64U, 301U}) {
        const std::size_t count = std::min(n, all.size() - skip);
        const std::vector<double> part = normals(1000 + skip, count, target);
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(bits(part[i]), bits(all[skip + i])) << skip << ' ' << i;
      }
    }
  }
  EXPECT_NE(all[0], all[1]);
}

}  // namespace
}  // namespace mantissa::normal_test
