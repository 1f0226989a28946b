// The counts of rows of f32 in vectors, against those of the same values one by one in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "mantissa/core/numeric/round.h"
#include "mantissa/core/numeric/value_counts.h"

namespace mantissa::count_rows_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr Scalar kFormats[] = {Scalar::f32, Scalar::tf32, Scalar::bf16,
                               Scalar::f16, Scalar::e5m2, Scalar::e4m3};
const RoundingMode kModes[] = {
    {}, {Rounding::toward_zero}, {Rounding::nearest, true}, {Rounding::nearest, false, true}};

/// Values before and after a rounding, and a term of each.
struct Rows {
  std::vector<float> before, after, term;

  /// Normal numbers around 2^-100 … 2^100 that fill `n` places, with special values spread among them.
  Rows(std::size_t n, Scalar format, RoundingMode mode, unsigned seed) {
    const auto most = static_cast<float>(traits(format).max_finite);
    const auto least = static_cast<float>(std::ldexp(1.0, traits(format).min_normal_exp));
    const float specials[] = {
        0,     -0.0F,         kInf,   -kInf,     NAN,          -NAN,      most, -most,
        least, least * 0.75F, -least, 0x1p-149F, -0x1.8p-130F, 0x1p-126F, 1,    0x1.fffffep127F};
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (std::size_t i = 0; i < n; ++i) {
      const bool special = random() % 8 == 0;
      const double x = std::ldexp(normal(random), static_cast<int>(random() % 200) - 100);
      before.push_back(special ? specials[random() % std::size(specials)] : static_cast<float>(x));
      after.push_back(static_cast<float>(round_to(static_cast<double>(before[i]), format, mode)));
      // Some sums cancel: the other term is near −term.
      const float size = std::ldexp(1.0F, static_cast<int>(random() % 12) - 3);
      term.push_back(random() % 16 == 0 ? specials[random() % std::size(specials)]
                                        : before[i] * static_cast<float>(normal(random)) * size);
    }
  }
};

std::vector<double> widened(const std::vector<float>& row) {
  return {row.begin(), row.end()};
}

ValueCounts counts_of(const Rows& rows, Scalar format, SimdTarget target) {
  ValueCounts c;
  c.add(rows.after.data(), rows.after.size(), format, target);
  c.add_errors(rows.before.data(), rows.after.data(), rows.after.size(), format, target);
  c.add_sums(rows.after.data(), rows.term.data(), rows.after.size(), target);
  return c;
}

ValueCounts counts_one_by_one(const Rows& rows, Scalar format) {
  const std::vector<double> before = widened(rows.before), after = widened(rows.after),
                            term = widened(rows.term);
  ValueCounts c;
  c.add(after.data(), after.size(), format);
  c.add_errors(before.data(), after.data(), after.size(), format);
  c.add_sums(after.data(), term.data(), after.size());
  return c;
}

/// The sums of magnitudes, which bound the errors of the sums.
struct Magnitudes {
  double values = 0, errors = 0, inward = 0;
  explicit Magnitudes(const Rows& rows) {
    for (std::size_t i = 0; i < rows.after.size(); ++i) {
      const double x = rows.before[i], y = rows.after[i];
      if (std::isfinite(y)) values += std::abs(y);
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      errors += std::abs(y - x);
      inward += std::abs(std::abs(x) - std::abs(y));
    }
  }
};

void expect_equal_counts(const ValueCounts& a, const ValueCounts& b) {
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.zeros, b.zeros);
  EXPECT_EQ(a.subnormal, b.subnormal);
  EXPECT_EQ(a.saturated, b.saturated);
  EXPECT_EQ(a.inf, b.inf);
  EXPECT_EQ(a.nan, b.nan);
  EXPECT_EQ(a.absmax, b.absmax);
  EXPECT_EQ(a.absmin, b.absmin);
  EXPECT_EQ(a.binades.counts, b.binades.counts);
  EXPECT_EQ(a.compared, b.compared);
  EXPECT_EQ(a.flushed, b.flushed);
  EXPECT_EQ(a.overflowed, b.overflowed);
  EXPECT_EQ(a.max_ulp, b.max_ulp);
  EXPECT_EQ(a.before.counts, b.before.counts);
  EXPECT_EQ(a.sums, b.sums);
  EXPECT_EQ(a.cancelled, b.cancelled);
}

class CountRows : public ::testing::TestWithParam<Scalar> {};

TEST_P(CountRows, EqualThoseOfTheirValuesOnEveryTarget) {
  const Scalar format = GetParam();
  for (const RoundingMode& mode : kModes) {
    for (const std::size_t n : {1, 15, 16, 17, 500, 512, 527, 5000}) {
      SCOPED_TRACE(::testing::Message() << name(format) << ", " << n << " values");
      const Rows rows(n, format, mode, static_cast<unsigned>(n));
      const ValueCounts plain = counts_one_by_one(rows, format);
      const Magnitudes sizes(rows);
      if (n == 5000) {
        EXPECT_GT(plain.saturated, 0U);
        EXPECT_GT(plain.cancelled, 0U);
        EXPECT_EQ(plain.overflowed > 0, format != Scalar::f32);
        EXPECT_EQ(plain.subnormal > 0, !mode.flush_subnormals);
      }
      // Sums of the same n terms in two orders, each with at most n roundings of half an ulp of the sum of
      // magnitudes, and squares with one rounding more.
      const double bound = static_cast<double>(n + 1) * std::numeric_limits<double>::epsilon();
      std::optional<ValueCounts> first;
      for (const SimdTarget target : simd_targets()) {
        const ValueCounts c = counts_of(rows, format, target);
        expect_equal_counts(c, plain);
        EXPECT_NEAR(c.sum, plain.sum, bound * sizes.values);
        EXPECT_NEAR(c.squares, plain.squares, bound * plain.squares);
        EXPECT_NEAR(c.error_sum, plain.error_sum, bound * sizes.errors);
        EXPECT_NEAR(c.error_inward, plain.error_inward, bound * sizes.inward);
        EXPECT_NEAR(c.error_squares, plain.error_squares, bound * plain.error_squares);
        if (!first) first = c;
        EXPECT_EQ(c.sum, first->sum) << "target " << target;
        EXPECT_EQ(c.squares, first->squares) << "target " << target;
        EXPECT_EQ(c.error_sum, first->error_sum) << "target " << target;
        EXPECT_EQ(c.error_inward, first->error_inward) << "target " << target;
        EXPECT_EQ(c.error_squares, first->error_squares) << "target " << target;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CountRows, ::testing::ValuesIn(kFormats),
                         [](const auto& format) { return std::string(name(format.param)); });

TEST(CountRows, OfZerosHaveNoSmallestMagnitude) {
  const std::vector<float> zeros(32, -0.0F);
  for (const SimdTarget target : simd_targets()) {
    ValueCounts c;
    c.add(zeros.data(), zeros.size(), Scalar::bf16, target);
    EXPECT_EQ(c.zeros, 32U);
    EXPECT_EQ(c.absmax, 0);
    EXPECT_EQ(c.absmin, std::numeric_limits<double>::infinity());
    EXPECT_EQ(c.binades.total(), 0U);
  }
}

TEST(CountRows, OfInfinitiesHaveNoSmallestMagnitude) {
  const std::vector<float> infinities(32, -kInf);
  for (const SimdTarget target : simd_targets()) {
    ValueCounts c;
    c.add(infinities.data(), infinities.size(), Scalar::bf16, target);
    EXPECT_EQ(c.inf, 32U);
    EXPECT_EQ(c.absmin, std::numeric_limits<double>::infinity());
  }
}

TEST(CountRows, AddToWhatWasCounted) {
  const Rows rows(777, Scalar::f16, {}, 3);
  ValueCounts whole, parts;
  whole.add(rows.after.data(), 777, Scalar::f16);
  parts.add(rows.after.data(), 160, Scalar::f16);
  parts.add(rows.after.data() + 160, 617, Scalar::f16);
  expect_equal_counts(parts, whole);
}

}  // namespace
}  // namespace mantissa::count_rows_test
