#include "mantissa/core/numeric/stochastic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "core/numeric/reference.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::stochastic_test {
namespace {

const RandomStream kStream(42, RandomUse::rounding, hash_name("model.norm.weight"), 7);

class Stochastic : public ::testing::TestWithParam<Scalar> {};
INSTANTIATE_TEST_SUITE_P(EveryNarrow, Stochastic, ::testing::ValuesIn(testing::kNarrow),
                         [](const auto& info) { return std::string(name(info.param)); });

template <class T>
void expect_as_scalar(const std::vector<T>& row, Scalar s, std::uint64_t index) {
  std::vector<std::byte> stored(row.size() * bytes_of(s));
  for (const SimdTarget target : simd_targets()) {
    stochastic_round(row.data(), row.size(), stored.data(), s, kStream, index, target);
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::uint64_t code = 0;
      std::memcpy(&code, stored.data() + i * bytes_of(s), bytes_of(s));
      const std::uint64_t expected =
          encode(static_cast<double>(row[i]), s, {Rounding::stochastic}, kStream.bits(index + i));
      ASSERT_EQ(code, expected) << std::hexfloat << row[i] << " at " << i << " target " << target;
    }
  }
}

std::vector<float> near_range_f32(Scalar s, std::uint64_t seed) {
  const std::vector<double> wide = testing::random_near_range(s, 50'021, seed);
  std::vector<float> row(wide.size());
  std::ranges::transform(wide, row.begin(), [](double x) { return static_cast<float>(x); });
  return row;
}

TEST_P(Stochastic, GivesTheScalarCodesOnEveryTarget) {
  const Scalar s = GetParam();
  for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{5}, (std::uint64_t{1} << 34) - 6}) {
    expect_as_scalar(testing::random_f32(50'021, 21), s, index);
    expect_as_scalar(testing::random_near_range(s, 50'021, 22), s, index);
    expect_as_scalar(near_range_f32(s, 22), s, index);
  }
}

TEST_P(Stochastic, TowardZeroGivesTheScalarCodesOnEveryTarget) {
  const Scalar s = GetParam();
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> specials = {0.0F,  -0.0F,  inf,     -inf, std::nanf(""), -std::nanf("5"),
                                 3e38F, -3e38F, 65519.9F};
  for (std::vector<float> row : {testing::random_f32(50'021, 24), near_range_f32(s, 25)}) {
    row.insert(row.begin() + 3, specials.begin(), specials.end());
    std::vector<std::byte> rounded(row.size() * bytes_of(s));
    for (const SimdTarget target : simd_targets()) {
      round_toward_zero(row.data(), row.size(), rounded.data(), s, target);
      for (std::size_t i = 0; i < row.size(); ++i) {
        std::uint64_t code = 0;
        std::memcpy(&code, rounded.data() + i * bytes_of(s), bytes_of(s));
        ASSERT_EQ(code, encode(static_cast<double>(row[i]), s, {Rounding::toward_zero}))
            << std::hexfloat << row[i] << " at " << i << " target " << target;
      }
    }
  }
}

TEST_P(Stochastic, DoesNotDependOnTheSplitOfTheArray) {
  const Scalar s = GetParam();
  const std::vector<float> row = testing::random_f32(1'000, 23);
  std::vector<std::byte> whole(row.size() * bytes_of(s)), pieces(whole.size());
  stochastic_round(row.data(), row.size(), whole.data(), s, kStream, 3);
  for (std::size_t at = 0, n = 1; at < row.size(); at += n, n = n * 3 % 101) {
    n = std::min(n, row.size() - at);
    stochastic_round(row.data() + at, n, pieces.data() + at * bytes_of(s), s, kStream, 3 + at);
  }
  EXPECT_EQ(whole, pieces);
}

TEST_P(Stochastic, IsUnbiased) {
  const Scalar s = GetParam();
  constexpr std::size_t kDraws = 200'000;
  std::vector<std::byte> stored(kDraws * bytes_of(s));
  std::vector<double> back(kDraws);
  // In the normal range with either sign, in the subnormals, and just below the largest value.
  const double subnormal = std::ldexp(1.0, traits(s).min_normal_exp - 1);
  for (const double base : {1.0, -1.5, subnormal, traits(s).max_finite - ulp(traits(s).max_finite, s)}) {
    for (const double fraction : {0.03125, 0.3, 0.5, 0.8125}) {
      const double last = ulp(base, s);
      const float x = static_cast<float>(base + fraction * last);
      const double p = (x - base) / last;  // the exact fraction of x as an f32
      const std::vector<float> row(kDraws, x);
      stochastic_round(row.data(), kDraws, stored.data(), s, kStream);
      load_row(stored.data(), s, 0, kDraws, back.data());
      double up = 0;
      for (const double y : back) {
        ASSERT_TRUE(y == base || y == base + last) << y;
        up += y == base ? 0 : 1;
      }
      // The count is binomial: within 6 standard deviations.
      EXPECT_NEAR(up, kDraws * p, 6 * std::sqrt(kDraws * p * (1 - p))) << base << " + " << fraction;
    }
  }
}

}  // namespace
}  // namespace mantissa::stochastic_test
