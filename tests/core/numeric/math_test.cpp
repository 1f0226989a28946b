#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <string>

#include "core/numeric/math_functions.h"
#include "core/numeric/reference.h"
#include "mantissa/core/numeric/row_math.h"

namespace mantissa::math_test {
namespace {

using testing::bits;
using testing::function_name;
using testing::kFunctions;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
/// The largest errors stated in core/numeric/math-inl.h, in ulp.
double stated_ulp(MathFunction f) {
  constexpr double kStated[] = {0.78, 0.84, 1.35, 1.97, 1.50, 0.5000001, 0.5000001, 5.5};
  return kStated[static_cast<int>(f)];
}

/// The C library's f64 result; its error is 2^-29 of an f32 ulp.
double exact(MathFunction f, double x) {
  switch (f) {
    case MathFunction::exp:
      return std::exp(x);
    case MathFunction::log:
      return std::log(x);
    case MathFunction::tanh:
      return std::tanh(x);
    case MathFunction::sigmoid:
      return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
    case MathFunction::rsqrt:
      return 1 / std::sqrt(x);
    case MathFunction::sin:
      return std::sin(x);
    case MathFunction::cos:
      return std::cos(x);
    case MathFunction::normal_cdf:
      return std::erfc(-x / std::numbers::sqrt2) / 2;
  }
  return 0;
}

double f32_ulp(double y) {
  return std::ldexp(1.0, std::max(y == 0 ? -126 : std::ilogb(y), -126) - 23);
}

/// |got - exact| in ulp. If the exact value has no finite f32, 0 if `got` is what it rounds to, else inf.
double error_in_ulp(float got, double expected) {
  const float rounded = static_cast<float>(expected);
  if (std::isnan(rounded)) return std::isnan(got) ? 0 : kInf;
  if (std::isinf(rounded)) return got == rounded ? 0 : kInf;
  return std::isfinite(got) ? std::fabs(got - expected) / f32_ulp(expected) : kInf;
}

std::vector<float> mapped(MathFunction f, const std::vector<float>& in, SimdTarget target = kBestTarget) {
  std::vector<float> out(in.size());
  map_row(f, in.data(), in.size(), out.data(), target);
  return out;
}

/// Expects errors within the stated bound and the same bits on every target for at most n f32 patterns:
/// first, first + step, and so on.
void expect_within_stated(MathFunction f, std::uint64_t first, std::uint64_t step, std::size_t n) {
  std::vector<float> in;
  for (std::uint64_t code = first; in.size() < n && code < (std::uint64_t{1} << 32); code += step) {
    in.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(code)));
  }
  const std::vector<float> out = mapped(f, in);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (error_in_ulp(out[i], exact(f, in[i])) > stated_ulp(f)) {
      FAIL() << std::hexfloat << in[i] << " gives " << out[i] << ", exact " << exact(f, in[i]);
    }
  }
  for (const SimdTarget target : simd_targets()) {
    const std::vector<float> other = mapped(f, in, target);
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (bits(out[i]) != bits(other[i])) FAIL() << std::hexfloat << in[i] << " differs on target " << target;
    }
  }
}

class Functions : public ::testing::TestWithParam<MathFunction> {};
INSTANTIATE_TEST_SUITE_P(Math, Functions, ::testing::ValuesIn(kFunctions), function_name);

TEST_P(Functions, AreWithinTheStatedErrorOnASample) {
  // An odd step visits every low bit and exponent.
  expect_within_stated(GetParam(), 0, 2003, std::size_t{1} << 22);
}

TEST_P(Functions, GiveBitsThatDoNotDependOnNeighbouringElements) {
  const std::vector<float> in = testing::random_f32(67, 3);
  const std::vector<float> all = mapped(GetParam(), in);
  for (const SimdTarget target : simd_targets()) {
    for (std::size_t first = 0; first < in.size(); ++first) {
      const std::vector<float> part(in.begin() + static_cast<std::ptrdiff_t>(first), in.end());
      const std::vector<float> out = mapped(GetParam(), part, target);
      for (std::size_t i = 0; i < part.size(); ++i)
        ASSERT_EQ(bits(out[i]), bits(all[first + i])) << first << "+" << i;
    }
  }
}

void expect_values(MathFunction f, const std::vector<float>& in, const std::vector<float>& expected) {
  const std::vector<float> out = mapped(f, in);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(out[i])) << in[i];
    } else {
      EXPECT_EQ(bits(out[i]), bits(expected[i])) << in[i];
    }
  }
}

TEST(Math, HandlesSpecialValues) {
  const std::vector<float> in = {0.0f, -0.0f, kInf, -kInf, kNan};
  expect_values(MathFunction::exp, in, {1, 1, kInf, 0, kNan});
  expect_values(MathFunction::log, in, {-kInf, -kInf, kInf, kNan, kNan});
  expect_values(MathFunction::tanh, in, {0.0f, -0.0f, 1, -1, kNan});
  expect_values(MathFunction::normal_cdf, in, {0.5f, 0.5f, 1, 0, kNan});
  expect_values(MathFunction::sigmoid, in, {0.5f, 0.5f, 1, 0, kNan});
  expect_values(MathFunction::log, {1.0f, -1.0f}, {0.0f, kNan});
  expect_values(MathFunction::rsqrt, in, {kInf, -kInf, 0, kNan, kNan});
  expect_values(MathFunction::rsqrt, {4.0f, -1.0f, 0x1p-126f}, {0.5f, kNan, 0x1p63f});
  expect_values(MathFunction::sin, in, {0.0f, -0.0f, kNan, kNan, kNan});
  expect_values(MathFunction::cos, in, {1, 1, kNan, kNan, kNan});
}

TEST(Math, ExpUnderflowsGradually) {
  const std::vector<float> out =
      mapped(MathFunction::exp, {-87.0f, -88.0f, -100.0f, -103.9f, -104.1f, 88.7f, 88.8f});
  EXPECT_GT(out[0], 0x1p-126f);
  EXPECT_LT(out[1], 0x1p-126f);
  EXPECT_GT(out[1], 0.0f);
  EXPECT_GT(out[2], 0.0f);
  EXPECT_EQ(out[3], 0x1p-149f);
  EXPECT_EQ(out[4], 0.0f);
  EXPECT_LT(out[5], kInf);
  EXPECT_EQ(out[6], kInf);
}

double by_mpfr(MathFunction f, double x) {
  mpfr_t y;
  mpfr_init2(y, 200);
  mpfr_set_d(y, x, MPFR_RNDN);
  f == MathFunction::sin ? mpfr_sin(y, y, MPFR_RNDN) : mpfr_cos(y, y, MPFR_RNDN);
  const double result = mpfr_get_d(y, MPFR_RNDN);
  mpfr_clear(y);
  return result;
}

/// Angles that are hard to reduce: the f32 nearest to multiples of π/2 in every binade, with their
/// neighbours, and the angles of a rotary table (positions times frequencies).
TEST(Math, SinAndCosKeepTheirErrorWhereTheAngleIsNearlyAQuarterTurnOrLarge) {
  std::vector<float> angles;
  for (int exponent = 0; exponent < 128; ++exponent) {
    for (const double odd : {1.0, 1.25, 1.5, 1.75}) {
      const double quarters = std::ldexp(odd, exponent);
      mpfr_t x;
      mpfr_init2(x, 300);
      mpfr_const_pi(x, MPFR_RNDN);
      mpfr_mul_d(x, x, quarters / 2, MPFR_RNDN);
      const float nearest = mpfr_get_flt(x, MPFR_RNDN);
      mpfr_clear(x);
      if (!std::isfinite(nearest)) continue;
      for (const float angle : {nearest, std::nextafter(nearest, 0.0f), std::nextafter(nearest, kInf)}) {
        angles.push_back(angle);
        angles.push_back(-angle);
      }
    }
  }
  for (int position = 0; position < 4000; ++position)
    angles.push_back(static_cast<float>(position * 37) * std::exp2(-static_cast<float>(position % 17)));
  // The f32 nearest to a multiple of π/2.
  angles.push_back(0x1.f37c8ap+95f);
  for (const MathFunction f : {MathFunction::sin, MathFunction::cos}) {
    const std::vector<float> out = mapped(f, angles);
    for (std::size_t i = 0; i < angles.size(); ++i) {
      if (!std::isfinite(angles[i])) continue;
      ASSERT_LE(error_in_ulp(out[i], by_mpfr(f, angles[i])), stated_ulp(f)) << std::hexfloat << angles[i];
    }
  }
}

class SlowFunctions : public Functions {};
INSTANTIATE_TEST_SUITE_P(Slow, SlowFunctions, ::testing::ValuesIn(kFunctions), function_name);

TEST_P(SlowFunctions, AreWithinTheStatedErrorForEveryF32) {
  constexpr std::uint64_t kChunk = std::uint64_t{1} << 18;
  for (std::uint64_t first = 0; first < (std::uint64_t{1} << 32) && !HasFatalFailure(); first += kChunk) {
    expect_within_stated(GetParam(), first, 1, kChunk);
  }
}

}  // namespace
}  // namespace mantissa::math_test
