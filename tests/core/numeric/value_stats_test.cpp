#include "mantissa/core/numeric/value_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/numeric/reference.h"

namespace mantissa::value_stats_test {
namespace {

TEST(ValueStats, DescribeTheValues) {
  const double inf = std::numeric_limits<double>::infinity();
  ValueStats stats;
  for (const double x : {3.0, -4.0, 0.0, -0.0, 1e-3, inf, std::nan("")}) stats.add(x);
  EXPECT_EQ(stats.count, 7U);
  EXPECT_EQ(stats.nonfinite, 2U);
  EXPECT_EQ(stats.zeros, 2U);
  EXPECT_EQ(stats.min, -4.0);
  EXPECT_EQ(stats.max, 3.0);
  EXPECT_EQ(stats.smallest, 1e-3);
  EXPECT_EQ(stats.rms(), std::sqrt((25.0 + 1e-6) / 5));
  EXPECT_EQ(ValueStats().rms(), 0);
}

TEST(ValueStats, OfRowsEqualThoseOfTheirValuesOnEveryTarget) {
  std::vector<float> row = testing::random_f32(1'003, 41);
  row[7] = 0;
  row[900] = std::numeric_limits<float>::infinity();
  row[1'001] = std::nanf("");
  for (const std::size_t n : {std::size_t{0}, std::size_t{5}, std::size_t{8}, row.size()}) {
    ValueStats one_by_one;
    for (std::size_t i = 0; i < n; ++i) one_by_one.add(static_cast<double>(row[i]));
    double squares = -1;
    for (const SimdTarget target : simd_targets()) {
      ValueStats stats;
      stats.add_row(row.data(), n, target);
      EXPECT_EQ(stats.count, one_by_one.count);
      EXPECT_EQ(stats.nonfinite, one_by_one.nonfinite);
      EXPECT_EQ(stats.zeros, one_by_one.zeros);
      EXPECT_EQ(stats.min, one_by_one.min);
      EXPECT_EQ(stats.max, one_by_one.max);
      EXPECT_EQ(stats.smallest, one_by_one.smallest);
      // Sums of n positive numbers in two orders.
      const double bound = static_cast<double>(n) * std::numeric_limits<double>::epsilon();
      EXPECT_NEAR(stats.sum_squares, one_by_one.sum_squares, bound * one_by_one.sum_squares);
      if (squares >= 0) {
        EXPECT_EQ(stats.sum_squares, squares) << "target " << target;
      }
      squares = stats.sum_squares;
    }
  }
}

}  // namespace
}  // namespace mantissa::value_stats_test
