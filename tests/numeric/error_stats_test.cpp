#include "mantissa/numeric/error_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mantissa/numeric/round.h"
#include "numeric/reference.h"

namespace mantissa {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

ErrorStats stats_of(const std::vector<double>& values, Scalar s, RoundingMode mode = {}) {
  ErrorStats stats;
  for (const double x : values) stats.add(x, round_to(x, s, mode), s);
  return stats;
}

TEST(ErrorStats, MeasuresErrorsWithTheirSign) {
  // In bf16 1 + 2^-9 becomes 1, 1 + 3 × 2^-9 becomes 1 + 2^-7.
  const ErrorStats stats = stats_of({1.0, 1 + 0x1p-9, 1 + 0x3p-9, -2.0}, Scalar::bf16);
  EXPECT_EQ(stats.count, 4u);
  EXPECT_EQ(stats.measured, 4u);
  EXPECT_EQ(stats.max_abs, 0x1p-9);
  EXPECT_EQ(stats.max_ulp, 0.25);
  EXPECT_EQ(stats.mean(), 0);
  EXPECT_EQ(stats.rms(), std::sqrt(2.0) * 0x1p-9 / 2);
  EXPECT_EQ(stats_of({1 + 0x1p-9}, Scalar::bf16).mean(), -0x1p-9);
}

TEST(ErrorStats, CountsWhatIsLost) {
  const ErrorStats stats =
      stats_of({1e6, -1e6, 1e-9, 0.0, kInf, std::nan(""), 65504.0, 65505.0}, Scalar::f16);
  EXPECT_EQ(stats.count, 8u);
  EXPECT_EQ(stats.overflows, 2u);
  EXPECT_EQ(stats.vanished, 1u);
  EXPECT_EQ(stats.nonfinite, 2u);
  EXPECT_EQ(stats.measured, 4u);
  EXPECT_EQ(stats.max_abs, 1.0);
}

TEST(ErrorStats, CountsSaturatedValuesAsOverflows) {
  const ErrorStats stats = stats_of({500.0, 450.0, -1000.0}, Scalar::e4m3, {.saturate = true});
  EXPECT_EQ(stats.overflows, 2u);
  EXPECT_EQ(stats.measured, 3u);
  EXPECT_EQ(stats.max_abs, 552.0);
}

TEST(ErrorStats, NearestIsWithinHalfAnUlp) {
  for (const Scalar s : testing::kNarrow) {
    const ErrorStats stats = stats_of(testing::random_near_range(s, 100'000, 9), s);
    EXPECT_LE(stats.max_ulp, 0.5) << name(s);
    EXPECT_GT(stats.max_ulp, 0.49) << name(s);
  }
}

TEST(ErrorStats, MergesParts) {
  const std::vector<double> values = testing::random_near_range(Scalar::f16, 1'000, 10);
  const auto middle = values.begin() + 300;
  ErrorStats parts = stats_of({values.begin(), middle}, Scalar::f16);
  parts.merge(stats_of({middle, values.end()}, Scalar::f16));
  const ErrorStats whole = stats_of(values, Scalar::f16);
  EXPECT_EQ(parts.count, whole.count);
  EXPECT_EQ(parts.measured, whole.measured);
  EXPECT_EQ(parts.overflows, whole.overflows);
  EXPECT_EQ(parts.vanished, whole.vanished);
  EXPECT_EQ(parts.nonfinite, whole.nonfinite);
  EXPECT_EQ(parts.max_abs, whole.max_abs);
  EXPECT_EQ(parts.max_ulp, whole.max_ulp);
  // The sums are the same numbers in another order: n roundings of at most the sum of magnitudes.
  const double bound = 1000 * std::numeric_limits<double>::epsilon();
  EXPECT_NEAR(parts.rms(), whole.rms(), bound * whole.rms());
  EXPECT_NEAR(parts.mean(), whole.mean(), bound * whole.max_abs);
}

TEST(ErrorStats, OfNothingAreZero) {
  const ErrorStats stats;
  EXPECT_EQ(stats.mean(), 0);
  EXPECT_EQ(stats.rms(), 0);
}

}  // namespace
}  // namespace mantissa
