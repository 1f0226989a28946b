#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "core/numeric/math_functions.h"
#include "core/numeric/reference.h"
#include "mantissa/core/numeric/row_math.h"

namespace mantissa::math_f64_test {
namespace {

using testing::bits;
using testing::function_name;
using testing::kFunctions;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
/// The f64 errors stated in core/numeric/math-inl.h, in ulp.
double stated_ulp(MathFunction f) {
  constexpr double kStated[] = {0.82, 0.80, 0.95, 1.97, 1.50, 0.65, 0.65, 6.5};
  return kStated[static_cast<int>(f)];
}

/// An MPFR number with enough bits even for a cosine that nearly vanishes.
class Exact {
 public:
  Exact() { mpfr_init2(value_, 200); }
  explicit Exact(double x) : Exact() { mpfr_set_d(value_, x, MPFR_RNDN); }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;
  ~Exact() { mpfr_clear(value_); }

  void apply(MathFunction f) {
    switch (f) {
      case MathFunction::exp:
        mpfr_exp(value_, value_, MPFR_RNDN);
        break;
      case MathFunction::log:
        mpfr_log(value_, value_, MPFR_RNDN);
        break;
      case MathFunction::tanh:
        mpfr_tanh(value_, value_, MPFR_RNDN);
        break;
      case MathFunction::sigmoid:
        mpfr_neg(value_, value_, MPFR_RNDN);
        mpfr_exp(value_, value_, MPFR_RNDN);
        mpfr_add_ui(value_, value_, 1, MPFR_RNDN);
        mpfr_ui_div(value_, 1, value_, MPFR_RNDN);
        break;
      case MathFunction::rsqrt:
        mpfr_rec_sqrt(value_, value_, MPFR_RNDN);
        break;
      case MathFunction::sin:
        mpfr_sin(value_, value_, MPFR_RNDN);
        break;
      case MathFunction::cos:
        mpfr_cos(value_, value_, MPFR_RNDN);
        break;
      case MathFunction::normal_cdf: {  // erfc(−x/√2)/2
        Exact root(2);
        mpfr_sqrt(root.value_, root.value_, MPFR_RNDN);
        mpfr_div(value_, value_, root.value_, MPFR_RNDN);
        mpfr_neg(value_, value_, MPFR_RNDN);
        mpfr_erfc(value_, value_, MPFR_RNDN);
        mpfr_div_2ui(value_, value_, 1, MPFR_RNDN);
        break;
      }
    }
  }

  double rounded() const { return mpfr_get_d(value_, MPFR_RNDN); }

  /// |got - this| in ulp. If this has no finite f64, 0 if `got` is what it rounds to, else inf.
  double error_in_ulp(double got) const {
    const double nearest = rounded();
    if (std::isnan(nearest)) return std::isnan(got) ? 0 : kInf;
    if (std::isinf(nearest)) return got == nearest ? 0 : kInf;
    if (!std::isfinite(got)) return kInf;
    const auto exponent = mpfr_zero_p(value_) ? -1022 : std::max<mpfr_exp_t>(mpfr_get_exp(value_) - 1, -1022);
    Exact error;
    mpfr_sub_d(error.value_, value_, got, MPFR_RNDN);
    mpfr_mul_2si(error.value_, error.value_, 52 - exponent, MPFR_RNDN);
    return std::fabs(error.rounded());
  }

  mpfr_ptr get() { return value_; }

 private:
  mpfr_t value_;
};

std::vector<double> mapped(MathFunction f, const std::vector<double>& in, SimdTarget target = kBestTarget) {
  std::vector<double> out(in.size());
  map_row(f, in.data(), in.size(), out.data(), target);
  return out;
}

/// Expects errors within the stated bound and the same bits on every target.
void expect_within_stated(MathFunction f, const std::vector<double>& in) {
  const std::vector<double> out = mapped(f, in);
  for (std::size_t i = 0; i < in.size(); ++i) {
    Exact exact(in[i]);
    exact.apply(f);
    const double error = exact.error_in_ulp(out[i]);
    if (error > stated_ulp(f)) {
      FAIL() << std::hexfloat << in[i] << " gives " << out[i] << ", exact " << exact.rounded()
             << std::defaultfloat << ", " << error << " ulp";
    }
  }
  for (const SimdTarget target : simd_targets()) {
    const std::vector<double> other = mapped(f, in, target);
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (bits(out[i]) != bits(other[i])) FAIL() << std::hexfloat << in[i] << " differs on target " << target;
    }
  }
}

/// MPFR's erfc takes milliseconds far from 0: fewer samples.
std::size_t samples(MathFunction f, std::size_t n) {
  return f == MathFunction::normal_cdf ? n / 64 : n;
}

/// Uniform samples from the range in which the function's value changes; random bit patterns rarely hit it.
std::vector<double> where_it_changes(MathFunction f, std::size_t n, std::uint64_t seed) {
  const auto [low, high] = [f]() -> std::pair<double, double> {
    switch (f) {
      case MathFunction::exp:
        return {-746, 710};
      case MathFunction::log:
      case MathFunction::rsqrt:
        return {0.5, 4};
      case MathFunction::tanh:
        return {-20, 20};
      case MathFunction::sigmoid:
        return {-746, 40};
      case MathFunction::sin:
      case MathFunction::cos:
        return {-1000, 1000};
      case MathFunction::normal_cdf:
        return {-39, 9};
    }
    return {};
  }();
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> wide(low, high), narrow(-1.5, 1.5), exponent(-40, 0), large(0, 1023);
  std::vector<double> in;
  while (in.size() < n) {
    in.push_back(wide(random));
    in.push_back(narrow(random));                                            // one period of each reduction
    in.push_back(std::copysign(std::exp2(exponent(random)), wide(random)));  // small
    in.push_back(1 + in.back());                                             // and near 1
    in.push_back(std::exp2(large(random)));
  }
  return in;
}

/// Points where a function changes its code path: c · (i + 1/2) or c · i for |i| ≤ `last`, with the f64 on
/// either side.
void push_multiples(std::vector<double>& in, double c, int last, double offset) {
  for (int i = -last; i <= last; ++i) {
    const double x = c * (i + offset);
    for (const double near : {std::nextafter(x, -kInf), x, std::nextafter(x, kInf)}) in.push_back(near);
  }
}

/// Every power of two times `factor` and its neighbours, of either sign, except zeros.
void push_binades(std::vector<double>& in, double factor) {
  for (int exponent = -1074; exponent < 1024; ++exponent) {
    const double x = std::ldexp(factor, exponent);
    for (const double near : {std::nextafter(x, 0.0), x, std::nextafter(x, kInf)}) {
      if (near == 0) continue;
      in.push_back(near);
      in.push_back(-near);
    }
  }
}

/// The f64 nearest to multiples of π/2 in every binade, and their neighbours.
void push_quarter_turns(std::vector<double>& in) {
  Exact x;
  for (int exponent = 0; exponent < 1023; ++exponent) {
    for (const double odd : {1.0, 1.25, 1.5, 1.75}) {
      mpfr_set_prec(x.get(), 1200);
      mpfr_const_pi(x.get(), MPFR_RNDN);
      mpfr_mul_d(x.get(), x.get(), std::ldexp(odd, exponent - 1), MPFR_RNDN);
      const double nearest = x.rounded();
      for (const double near : {std::nextafter(nearest, 0.0), nearest, std::nextafter(nearest, kInf)}) {
        in.push_back(near);
        in.push_back(-near);
      }
    }
  }
}

class FunctionsF64 : public ::testing::TestWithParam<MathFunction> {};
INSTANTIATE_TEST_SUITE_P(Math, FunctionsF64, ::testing::ValuesIn(kFunctions), function_name);

TEST_P(FunctionsF64, AreWithinTheStatedErrorOnRandomBits) {
  expect_within_stated(GetParam(), testing::random_f64(10'000, 1));
}

TEST_P(FunctionsF64, AreWithinTheStatedErrorWhereTheyChange) {
  expect_within_stated(GetParam(), where_it_changes(GetParam(), samples(GetParam(), 30'000), 2));
}

TEST_P(FunctionsF64, AreWithinTheStatedErrorInEveryBinade) {
  std::vector<double> in;
  push_binades(in, 1);
  push_binades(in, std::sqrt(2.0));
  expect_within_stated(GetParam(), in);
}

TEST(MathF64, ExpTanhAndSigmoidKeepTheirErrorWhereTheReductionSwitches) {
  std::vector<double> in;
  push_multiples(in, std::log(2.0), 1080, 0.5);
  push_multiples(in, std::log(2.0), 1080, 0);
  push_multiples(in, std::log(2.0) / 2, 64, 0.5);
  // Overflow, the last normal and the last subnormal result, and the point from which tanh is 1.
  for (const double x : {0x1.62e42fefa39efp+9, -0x1.6232bdd7abcd2p+9, -0x1.74385446d71c3p+9,
                         -0x1.74910d52d3051p+9, 0x1.30fc1931f09cap+4}) {
    for (const double near : {std::nextafter(x, -kInf), x, std::nextafter(x, kInf)}) in.push_back(near);
  }
  for (const MathFunction f : {MathFunction::exp, MathFunction::tanh, MathFunction::sigmoid}) {
    expect_within_stated(f, in);
  }
}

TEST(MathF64, NormalCdfKeepsItsErrorWhereItsPathSwitches) {
  std::vector<double> in;
  std::mt19937_64 random(6);
  // On both sides of the switch, and where the result becomes subnormal and then 0.
  std::uniform_real_distribution<double> below(0.75, 1), above(1, 1.5), last(-39, -37);
  for (int i = 0; i < 300; ++i) {
    for (auto* range : {&below, &above}) {
      in.push_back((*range)(random));
      in.push_back(-in.back());
    }
    in.push_back(last(random));
  }
  for (const double x : {1.0, 40.0}) {
    for (const double near : {std::nextafter(x, 0.0), x, std::nextafter(x, kInf)}) {
      in.push_back(near);
      in.push_back(-near);
    }
  }
  expect_within_stated(MathFunction::normal_cdf, in);
}

TEST(MathF64, SinAndCosKeepTheirErrorWhereTheAngleIsNearlyAQuarterTurnOrLarge) {
  std::vector<double> in;
  push_quarter_turns(in);
  push_multiples(in, std::acos(-1.0) / 2, 1000, 0.5);
  push_multiples(in, std::acos(-1.0) / 2, 1000, 0);
  push_multiples(in, 0x1p30, 4, 0);      // beyond 2^30 the reduction uses another path
  in.push_back(0x1.6ac5b262ca1ffp+849);  // the nearest of all f64 to a multiple of π/2
  expect_within_stated(MathFunction::sin, in);
  expect_within_stated(MathFunction::cos, in);
}

TEST_P(FunctionsF64, GiveBitsThatDoNotDependOnNeighbouringElements) {
  std::vector<double> in = testing::random_f64(40, 3);
  const std::vector<double> more = where_it_changes(GetParam(), 40, 4);
  for (std::size_t i = 0; i < more.size(); ++i)
    in.insert(in.begin() + static_cast<std::ptrdiff_t>(2 * i), more[i]);
  const std::vector<double> all = mapped(GetParam(), in);
  for (const SimdTarget target : simd_targets()) {
    for (std::size_t first = 0; first < in.size(); ++first) {
      const std::vector<double> part(in.begin() + static_cast<std::ptrdiff_t>(first), in.end());
      const std::vector<double> out = mapped(GetParam(), part, target);
      for (std::size_t i = 0; i < part.size(); ++i)
        ASSERT_EQ(bits(out[i]), bits(all[first + i])) << first << "+" << i;
    }
  }
}

void expect_values(MathFunction f, const std::vector<double>& in, const std::vector<double>& expected) {
  for (const SimdTarget target : simd_targets()) {
    const std::vector<double> out = mapped(f, in, target);
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(out[i])) << in[i];
        EXPECT_NE(bits(out[i]) & 0x0008000000000000, 0u) << in[i] << " gives a signalling nan";
      } else {
        EXPECT_EQ(bits(out[i]), bits(expected[i])) << in[i];
      }
    }
  }
}

TEST(MathF64, HandlesSpecialValues) {
  const double signalling = std::bit_cast<double>(std::uint64_t{0x7ff0000000000001});
  const std::vector<double> in = {0.0, -0.0, kInf, -kInf, kNan, -kNan, signalling};
  expect_values(MathFunction::exp, in, {1, 1, kInf, 0, kNan, kNan, kNan});
  expect_values(MathFunction::log, in, {-kInf, -kInf, kInf, kNan, kNan, kNan, kNan});
  expect_values(MathFunction::tanh, in, {0.0, -0.0, 1, -1, kNan, kNan, kNan});
  expect_values(MathFunction::sigmoid, in, {0.5, 0.5, 1, 0, kNan, kNan, kNan});
  expect_values(MathFunction::normal_cdf, in, {0.5, 0.5, 1, 0, kNan, kNan, kNan});
  expect_values(MathFunction::rsqrt, in, {kInf, -kInf, 0, kNan, kNan, kNan, kNan});
  expect_values(MathFunction::sin, in, {0.0, -0.0, kNan, kNan, kNan, kNan, kNan});
  expect_values(MathFunction::cos, in, {1, 1, kNan, kNan, kNan, kNan, kNan});
  expect_values(MathFunction::log, {1.0, -1.0, -0x1p-1074}, {0.0, kNan, kNan});
  expect_values(MathFunction::tanh, {0x1p-1074, -0x1p-1074, 20, -400}, {0x1p-1074, -0x1p-1074, 1, -1});
  expect_values(MathFunction::sin, {0x1p-1074, -0x1p-1074}, {0x1p-1074, -0x1p-1074});
}

TEST(MathF64, ExpUnderflowsGradually) {
  const std::vector<double> out = mapped(MathFunction::exp, {-708.0, -709.0, -745.0, -745.2, 709.7, 709.8});
  EXPECT_GT(out[0], 0x1p-1022);
  EXPECT_LT(out[1], 0x1p-1022);
  EXPECT_GT(out[1], 0.0);
  EXPECT_EQ(out[2], 0x1p-1074);
  EXPECT_EQ(out[3], 0.0);
  EXPECT_LT(out[4], kInf);
  EXPECT_EQ(out[5], kInf);
}

class SlowFunctionsF64 : public FunctionsF64 {};
INSTANTIATE_TEST_SUITE_P(Slow, SlowFunctionsF64, ::testing::ValuesIn(kFunctions), function_name);

TEST_P(SlowFunctionsF64, AreWithinTheStatedErrorOnALargeSample) {
  constexpr std::size_t kChunk = std::size_t{1} << 16;
  for (std::uint64_t seed = 0; seed < 64 && !HasFatalFailure(); ++seed) {
    expect_within_stated(GetParam(), where_it_changes(GetParam(), samples(GetParam(), kChunk), seed));
    expect_within_stated(GetParam(), testing::random_f64(kChunk / 4, seed));
  }
}

}  // namespace
}  // namespace mantissa::math_f64_test
