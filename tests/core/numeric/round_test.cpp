#include "mantissa/core/numeric/round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/numeric/reference.h"

namespace mantissa::round_test {
namespace {

using testing::bits;
using testing::kNarrow;
using testing::kSmall;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr RoundingMode kTowardZero = {.rounding = Rounding::toward_zero};
constexpr RoundingMode kSaturate = {.saturate = true};
constexpr RoundingMode kFlush = {.flush_subnormals = true};

class EveryNarrow : public ::testing::TestWithParam<Scalar> {};
std::string scalar_name(const ::testing::TestParamInfo<Scalar>& info) {
  return std::string(name(info.param));
}
INSTANTIATE_TEST_SUITE_P(Round, EveryNarrow, ::testing::ValuesIn(kNarrow), scalar_name);

/// Rounds `value` to nearest and toward zero and expects MPFR's bits. NaNs compare equal.
void expect_as_mpfr(double value, Scalar s) {
  for (const Rounding rounding : {Rounding::nearest, Rounding::toward_zero}) {
    const double expected = testing::round_by_mpfr(value, s, rounding);
    const double got = round_to(value, s, {.rounding = rounding});
    if (std::isnan(expected) && std::isnan(got)) continue;
    ASSERT_EQ(bits(got), bits(expected)) << value << " -> " << got << ", MPFR " << expected << ", "
                                         << (rounding == Rounding::nearest ? "nearest" : "toward zero");
  }
}

TEST(Decode, ReturnsEveryValueOfTheSmallFormats) {
  for (const Scalar s : kSmall) {
    SCOPED_TRACE(std::string(name(s)));
    const std::vector<double> grid = testing::positive_values(s);
    const std::uint64_t half = testing::code_count(s) / 2;
    for (std::uint64_t code = 0; code + 1 < grid.size(); ++code) {
      ASSERT_EQ(bits(decode(code, s)), bits(grid[code])) << code;
      ASSERT_EQ(bits(decode(half | code, s)), bits(-grid[code])) << code;
    }
    std::uint64_t code = grid.size() - 1;  // the first code after the largest finite value
    if (traits(s).has_infinity) {
      EXPECT_EQ(decode(code, s), kInf);
      EXPECT_EQ(decode(half | code, s), -kInf);
      ++code;
    }
    for (; code < half; ++code) {
      ASSERT_TRUE(std::isnan(decode(code, s)) && !std::signbit(decode(code, s))) << code;
      ASSERT_TRUE(std::isnan(decode(half | code, s)) && std::signbit(decode(half | code, s))) << code;
    }
  }
}

TEST(Encode, InvertsDecodeForEveryCode) {
  for (const Scalar s : kSmall) {
    SCOPED_TRACE(std::string(name(s)));
    const std::uint64_t quiet = std::uint64_t{1} << (traits(s).mantissa_bits - 1);
    for (std::uint64_t code = 0; code < testing::code_count(s); ++code) {
      const double value = decode(code, s);
      const bool is_ieee_nan = std::isnan(value) && traits(s).has_infinity;
      const std::uint64_t expected = is_ieee_nan ? code | quiet : code;
      for (const RoundingMode mode :
           {RoundingMode{}, kTowardZero, RoundingMode{.rounding = Rounding::stochastic}}) {
        ASSERT_EQ(encode(value, s, mode), expected) << code;
      }
    }
  }
}

TEST(Encode, AgreesWithTheHardwareForF32AndF64) {
  for (const double x : testing::random_f64(1'000'000, 1)) {
    ASSERT_EQ(encode(x, Scalar::f32), bits(static_cast<float>(x))) << x;
    if (!std::isnan(x)) {
      ASSERT_EQ(encode(x, Scalar::f64), bits(x)) << x;
      ASSERT_EQ(bits(decode(bits(x), Scalar::f64)), bits(x)) << x;
    }
  }
  for (const float x : testing::random_f32(1'000'000, 2)) {
    ASSERT_EQ(bits(decode(bits(x), Scalar::f32)), bits(static_cast<double>(x))) << x;
  }
}

TEST_P(EveryNarrow, RoundsCriticalValuesLikeMpfr) {
  std::vector<double> values = testing::critical_values(GetParam());
  // tf32 has 2^19 positive codes; a stride of 19 keeps this test short.
  const std::size_t step = GetParam() == Scalar::tf32 ? 19 : 1;
  for (std::size_t i = 0; i < values.size(); i += step) {
    expect_as_mpfr(values[i], GetParam());
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryNarrow, RoundsRandomValuesLikeMpfr) {
  constexpr std::uint64_t kSeed = 20240611;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const double x : testing::random_near_range(GetParam(), 1'000'000, kSeed)) {
    expect_as_mpfr(x, GetParam());
    if (HasFatalFailure()) return;
  }
  for (const float x : testing::random_f32(300'000, kSeed)) {
    expect_as_mpfr(x, GetParam());
    if (HasFatalFailure()) return;
  }
  for (const double x : testing::random_f64(300'000, kSeed)) {
    expect_as_mpfr(x, GetParam());
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryNarrow, OverflowsPastTheTopMidpoint) {
  const Scalar s = GetParam();
  const double max = traits(s).max_finite;
  const double midpoint = max + ulp(max, s) / 2;
  // The largest code of an IEEE format is odd, so the tie overflows; that of e4m3 is even, so it does not.
  const bool tie_overflows = traits(s).has_infinity;
  EXPECT_EQ(round_to(std::nextafter(midpoint, 0.0), s), max);
  EXPECT_EQ(std::isfinite(round_to(midpoint, s)), !tie_overflows);
  EXPECT_FALSE(std::isfinite(round_to(std::nextafter(midpoint, kInf), s)));
  EXPECT_EQ(std::isnan(round_to(-2 * max, s)), !traits(s).has_infinity);
  EXPECT_EQ(round_to(-2 * max, s, kTowardZero), -max);
  EXPECT_FALSE(std::isfinite(round_to(kInf, s, kTowardZero)));
}

TEST_P(EveryNarrow, SaturatesToTheLargestFiniteValue) {
  const Scalar s = GetParam();
  const double max = traits(s).max_finite;
  for (const double x : testing::critical_values(s)) {
    const double plain = round_to(x, s);
    const double expected = std::isfinite(plain) ? plain : std::copysign(max, x);
    ASSERT_EQ(bits(round_to(x, s, kSaturate)), bits(expected)) << x;
  }
  EXPECT_TRUE(std::isnan(round_to(std::nan(""), s, kSaturate)));
}

TEST_P(EveryNarrow, FlushesResultsBelowTheSmallestNormal) {
  const Scalar s = GetParam();
  const double smallest = std::ldexp(1.0, traits(s).min_normal_exp);
  for (const double x : testing::critical_values(s)) {
    const double plain = round_to(x, s);
    const double expected = std::fabs(plain) < smallest ? std::copysign(0.0, x) : plain;
    const double got = round_to(x, s, kFlush);
    if (std::isnan(expected) && std::isnan(got)) continue;
    ASSERT_EQ(bits(got), bits(expected)) << x;
  }
  // A value that rounds up to the smallest normal is kept.
  EXPECT_EQ(round_to(std::nextafter(smallest, 0.0), s, kFlush), smallest);
}

TEST_P(EveryNarrow, KeepsNansQuietWithSignAndPayload) {
  const Scalar s = GetParam();
  const ScalarTraits& t = traits(s);
  for (const std::uint64_t sign : {std::uint64_t{0}, std::uint64_t{1} << 63}) {
    const std::uint64_t signalling = sign | 0x7ff0000000000001;
    const std::uint64_t with_payload =
        sign | 0x7ff8000000000000 | (std::uint64_t{1} << (52 - t.mantissa_bits));
    const std::uint64_t plain = sign | 0x7ff8000000000000;
    EXPECT_EQ(bits(round_to(std::bit_cast<double>(signalling), s)), plain);
    EXPECT_EQ(bits(round_to(std::bit_cast<double>(with_payload), s)), t.has_infinity ? with_payload : plain);
  }
}

TEST_P(EveryNarrow, StochasticRoundsUpWhileRandomIsBelowTheFraction) {
  const Scalar s = GetParam();
  const RoundingMode mode = {.rounding = Rounding::stochastic};
  // 1 + 3/8 of the last place rounds up exactly when random < 3/8 × 2^32; the same holds for subnormals and
  // negative values.
  for (const double unit : {1.0, -1.0, std::ldexp(1.0, traits(s).min_normal_exp - 1)}) {
    const double last = std::copysign(ulp(unit, s), unit);
    const double x = unit + 0.375 * last;
    EXPECT_EQ(round_to(x, s, mode, 0), unit + last);
    EXPECT_EQ(round_to(x, s, mode, 0x5fffffff), unit + last);
    EXPECT_EQ(round_to(x, s, mode, 0x60000000), unit);
    EXPECT_EQ(round_to(x, s, mode, 0xffffffff), unit);
    EXPECT_EQ(round_to(unit, s, mode, 0), unit);
  }
}

TEST(Ulp, IsTheStepToTheNextValue) {
  for (const Scalar s : kSmall) {
    const std::vector<double> grid = testing::positive_values(s);
    for (std::size_t c = 0; c + 1 < grid.size(); ++c)
      ASSERT_EQ(ulp(grid[c], s), grid[c + 1] - grid[c]) << name(s) << c;
    EXPECT_EQ(ulp(-1.5, s), 2 * unit_roundoff(s));
  }
}

}  // namespace
}  // namespace mantissa::round_test
