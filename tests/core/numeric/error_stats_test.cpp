#include "mantissa/core/numeric/error_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/numeric/reference.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::error_stats_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

ErrorStats stats_of(const std::vector<double>& values, Scalar s, RoundingMode mode = {}) {
  ErrorStats stats;
  for (const double x : values) stats.add(x, round_to(x, s, mode), s);
  return stats;
}

TEST(ErrorStats, MeasuresSignedErrors) {
  // In bf16 1 + 2^-9 rounds to 1, and 1 + 3 × 2^-9 to 1 + 2^-7.
  const ErrorStats stats = stats_of({1.0, 1 + 0x1p-9, 1 + 0x3p-9, -2.0}, Scalar::bf16);
  EXPECT_EQ(stats.count, 4u);
  EXPECT_EQ(stats.measured, 4u);
  EXPECT_EQ(stats.max_abs, 0x1p-9);
  EXPECT_EQ(stats.max_ulp, 0.25);
  EXPECT_EQ(stats.mean(), 0);
  EXPECT_EQ(stats.rms(), std::sqrt(2.0) * 0x1p-9 / 2);
  EXPECT_EQ(stats_of({1 + 0x1p-9}, Scalar::bf16).mean(), -0x1p-9);
}

TEST(ErrorStats, CountsOverflowsUnderflowsAndNonfiniteValues) {
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
  // Both sums add the same numbers in different orders: n roundings of at most the sum of magnitudes.
  const double bound = 1000 * std::numeric_limits<double>::epsilon();
  EXPECT_NEAR(parts.rms(), whole.rms(), bound * whole.rms());
  EXPECT_NEAR(parts.mean(), whole.mean(), bound * whole.max_abs);
}

TEST(ErrorStats, MeasuresErrorsRelativeToTheValues) {
  // 1 + 2^-9 becomes 1 and 1 + 3 × 2^-9 becomes 1 + 2^-7; 1e-45 vanishes whole.
  const ErrorStats stats = stats_of({1 + 0x1p-9, 1 + 0x3p-9, 0.0}, Scalar::bf16);
  EXPECT_EQ(stats.max_relative, 0x1p-9 / (1 + 0x1p-9));
  EXPECT_EQ(stats.relative(), std::sqrt(0x2p-18 / (std::pow(1 + 0x1p-9, 2) + std::pow(1 + 0x3p-9, 2))));
  EXPECT_EQ(stats.largest, 1 + 0x3p-9);
  EXPECT_EQ(stats_of({1e-45}, Scalar::bf16).max_relative, 1);
  EXPECT_EQ(stats_of({1e30}, Scalar::f16).largest, 1e30);
}

TEST(ErrorStats, CountsValuesRoundedBeyondTheRange) {
  ErrorStats stats;  // 65505 is nearer to 65504, but stochastic rounding may round up
  stats.add(65505, kInf, Scalar::f16);
  EXPECT_EQ(stats.overflows, 1U);
  EXPECT_EQ(stats.measured, 0U);
}

template <class T>
void expect_row_stats(std::vector<T> row, Scalar s, RoundingMode mode) {
  const T inf = std::numeric_limits<T>::infinity();
  const T specials[] = {T{0},
                        -T{0},
                        inf,
                        -inf,
                        std::numeric_limits<T>::quiet_NaN(),
                        T{464},
                        T{465},
                        T{65519},
                        T{65520},
                        T{-65536},
                        T(3.3961775e38),
                        T(1e-45)};
  row.insert(row.begin() + 3, std::begin(specials), std::end(specials));
  std::vector<T> after(row.size());
  for (std::size_t i = 0; i < row.size(); ++i)
    after[i] = static_cast<T>(round_to(static_cast<double>(row[i]), s, mode));
  ErrorStats one_by_one;
  for (std::size_t i = 0; i < row.size(); ++i)
    one_by_one.add(static_cast<double>(row[i]), static_cast<double>(after[i]), s);
  ErrorStats first;
  for (const SimdTarget target : simd_targets()) {
    ErrorStats stats;
    stats.add_row(row.data(), after.data(), row.size(), s, target);
    EXPECT_EQ(stats.count, one_by_one.count);
    EXPECT_EQ(stats.measured, one_by_one.measured);
    EXPECT_EQ(stats.nonfinite, one_by_one.nonfinite);
    EXPECT_EQ(stats.overflows, one_by_one.overflows);
    EXPECT_EQ(stats.vanished, one_by_one.vanished);
    EXPECT_EQ(stats.max_abs, one_by_one.max_abs);
    EXPECT_EQ(stats.max_ulp, one_by_one.max_ulp);
    EXPECT_EQ(stats.max_relative, one_by_one.max_relative);
    EXPECT_EQ(stats.largest, one_by_one.largest);
    // Sums of the same numbers in two orders.
    const double n = static_cast<double>(row.size()) * std::numeric_limits<double>::epsilon();
    EXPECT_NEAR(stats.sum_squares, one_by_one.sum_squares, n * one_by_one.sum_squares);
    EXPECT_NEAR(stats.squares_before, one_by_one.squares_before, n * one_by_one.squares_before);
    EXPECT_NEAR(stats.sum, one_by_one.sum, n * one_by_one.max_abs * static_cast<double>(row.size()));
    if (first.count > 0) {
      EXPECT_EQ(stats.sum, first.sum) << "target " << target;
      EXPECT_EQ(stats.sum_squares, first.sum_squares) << "target " << target;
      EXPECT_EQ(stats.squares_before, first.squares_before) << "target " << target;
    }
    first = stats;
  }
}

TEST(ErrorStats, OfRowsEqualThoseOfTheirValuesOnEveryTarget) {
  for (const Scalar s : testing::kNarrow) {
    for (const RoundingMode mode :
         {RoundingMode{}, RoundingMode{Rounding::toward_zero}, RoundingMode{Rounding::nearest, true}}) {
      SCOPED_TRACE(name(s));
      const std::vector<double> wide = testing::random_near_range(s, 2'005, 51);
      expect_row_stats(wide, s, mode);
      expect_row_stats(std::vector<float>(wide.begin(), wide.end()), s, mode);
    }
  }
}

TEST(ErrorStats, AreZeroWithoutValues) {
  const ErrorStats stats;
  EXPECT_EQ(stats.mean(), 0);
  EXPECT_EQ(stats.rms(), 0);
}

}  // namespace
}  // namespace mantissa::error_stats_test
