// Counts of values and of what rounding did to them, against plain sums.
#include "mantissa/core/numeric/value_counts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "mantissa/core/numeric/round.h"

namespace mantissa::value_counts_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(ValueCounts, CountsRangesOfTheFormat) {
  const std::vector<double> x = {0,     -0.0, 1,   -65504, 0x1p-24, -0x1.8p-15,
                                 -kInf, kInf, NAN, 65504,  0x1p-14, 3};
  ValueCounts c;
  c.add(x.data(), x.size(), Scalar::f16);
  EXPECT_EQ(c.count, 12U);
  EXPECT_EQ(c.zeros, 2U);
  EXPECT_EQ(c.subnormal, 2U);
  EXPECT_EQ(c.saturated, 2U);
  EXPECT_EQ(c.inf, 2U);
  EXPECT_EQ(c.nan, 1U);
  EXPECT_EQ(c.finite(), 9U);
  EXPECT_EQ(c.absmax, 65504);
  EXPECT_EQ(c.absmin, 0x1p-24);
  EXPECT_EQ(c.binades.at(0), 1U);
  EXPECT_EQ(c.binades.at(1), 1U);
  EXPECT_EQ(c.binades.at(15), 2U);
  EXPECT_EQ(c.binades.at(-24), 1U);
  EXPECT_EQ(c.binades.at(-15), 1U);
  EXPECT_EQ(c.binades.total(), 7U);
  EXPECT_DOUBLE_EQ(c.mean(), (1 + 0x1p-24 - 0x1.8p-15 + 0x1p-14 + 3) / 9);
}

TEST(ValueCounts, MeasuresTheErrorsOfARounding) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (const auto& [format, mode] :
       {std::pair{Scalar::bf16, RoundingMode{}}, std::pair{Scalar::f16, RoundingMode{}},
        std::pair{Scalar::bf16, RoundingMode{Rounding::toward_zero}},
        std::pair{Scalar::e4m3, RoundingMode{Rounding::nearest, true}}}) {
    ValueCounts c;
    std::vector<double> before(5000), after(5000);
    double squares = 0, inward = 0, sum = 0, most = 0;
    std::uint64_t flushed = 0, overflowed = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      before[i] = std::ldexp(normal(random), static_cast<int>(random() % 40) - 30);
      after[i] = round_to(before[i], format, mode);
      const double error = after[i] - before[i];
      flushed += before[i] != 0 && after[i] == 0;
      overflowed += std::abs(before[i]) > overflow_bound(format);
      squares += error * error;
      sum += error;
      inward += std::abs(before[i]) - std::abs(after[i]);
      most = std::max(most, std::abs(error) / ulp(before[i], format));
    }
    c.add(after.data(), after.size(), format);
    c.add_errors(before.data(), after.data(), after.size(), format);
    EXPECT_EQ(c.compared, before.size());
    EXPECT_EQ(c.flushed, flushed);
    EXPECT_EQ(c.overflowed, overflowed);
    // Sums of 5000 terms in f64: at most 5000 roundings of half an ulp of the sum of magnitudes.
    EXPECT_NEAR(c.error_squares, squares, 1e-12 * squares);
    EXPECT_NEAR(c.error_sum, sum, 1e-12 * std::sqrt(squares) * 5000);
    EXPECT_NEAR(c.error_inward, inward, 1e-12 * std::sqrt(squares) * 5000);
    if (format != Scalar::e4m3) {
      EXPECT_DOUBLE_EQ(c.max_ulp, most);
      EXPECT_LE(c.max_ulp, mode.rounding == Rounding::nearest ? 0.5 : 1);
    }
    EXPECT_EQ(c.before.total(), before.size());
    // The largest of the 40 binades dominate.
    if (mode.rounding == Rounding::toward_zero) {
      EXPECT_GT(c.relative_inward(), 0.1 * c.relative_error());
    }
  }
}

TEST(ValueCounts, SeesValuesThatOverflow) {
  const std::vector<double> before = {1e5, -1e6, 1, kInf}, after = {kInf, -kInf, 1, kInf};
  ValueCounts c;
  c.add(after.data(), 4, Scalar::f16);
  c.add_errors(before.data(), after.data(), 4, Scalar::f16);
  EXPECT_EQ(c.overflowed, 2U);
  EXPECT_EQ(c.compared, 1U);
  EXPECT_EQ(c.inf, 3U);
}

TEST(ValueCounts, CountsCancellation) {
  // The sums 1 − 0.999 and 1 + 1, and one of a term that is not finite.
  const std::vector<double> sum = {0.001, 2, kInf}, term = {-0.999, 1, kInf};
  ValueCounts c;
  c.add_sums(sum.data(), term.data(), 3);
  EXPECT_EQ(c.sums, 2U);
  EXPECT_EQ(c.cancelled, 1U);
}

TEST(ValueCounts, OfPartsAddUp) {
  std::vector<double> x;
  for (int i = 0; i < 1000; ++i) x.push_back(std::ldexp(1.0, i % 40 - 20) * (i % 3 - 1));
  ValueCounts whole, first, second;
  whole.add(x.data(), 1000, Scalar::f16);
  first.add(x.data(), 300, Scalar::f16);
  second.add(x.data() + 300, 700, Scalar::f16);
  first.merge(second);
  EXPECT_EQ(first.count, whole.count);
  EXPECT_EQ(first.zeros, whole.zeros);
  EXPECT_EQ(first.binades.counts, whole.binades.counts);
  EXPECT_EQ(first.absmax, whole.absmax);
  EXPECT_EQ(first.absmin, whole.absmin);
}

/// One rounding beyond the largest value, as under a scale that puts the largest magnitude there.
TEST(ValueCounts, CountNoOverflowThatIsWithinTheRounding) {
  for (const Scalar format : {Scalar::e4m3, Scalar::e5m2, Scalar::f16}) {
    SCOPED_TRACE(name(format));
    const double most = traits(format).max_finite, bound = overflow_bound(format);
    const std::vector<double> before(16, std::nextafter(static_cast<float>(most), 1e9F));
    const std::vector<double> beyond(16, std::nextafter(static_cast<float>(bound), 1e9F));
    const std::vector<double> after(16, most);
    const std::vector<float> before_f32(before.begin(), before.end()),
        beyond_f32(beyond.begin(), beyond.end());
    const std::vector<float> after_f32(after.begin(), after.end());
    EXPECT_EQ(round_to(before[0], format, {Rounding::nearest, true}), most);
    ValueCounts f64, f32;
    f64.add_errors(before.data(), after.data(), 16, format);
    f32.add_errors(before_f32.data(), after_f32.data(), 16, format);
    EXPECT_EQ(f64.overflowed, 0U);
    EXPECT_EQ(f32.overflowed, 0U);
    f64.add_errors(beyond.data(), after.data(), 16, format);
    f32.add_errors(beyond_f32.data(), after_f32.data(), 16, format);
    EXPECT_EQ(f64.overflowed, 16U);
    EXPECT_EQ(f32.overflowed, 16U);
  }
}

}  // namespace
}  // namespace mantissa::value_counts_test
