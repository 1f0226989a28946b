#include "mantissa/core/numeric/encode_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "core/numeric/reference.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::encode_row_test {
namespace {

const RandomStream kStream(42, RandomUse::conversion, hash_name("lm_head.weight"), 0);

using Case = std::tuple<Scalar, Rounding, bool>;

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  constexpr const char* kNames[] = {"Nearest", "TowardZero", "Stochastic"};
  const auto [s, rounding, saturate] = info.param;
  return std::string(name(s)) + kNames[static_cast<std::size_t>(rounding)] + (saturate ? "Saturate" : "");
}

class EncodeRow : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(EveryFormatAndRounding, EncodeRow,
                         ::testing::Combine(::testing::ValuesIn(kScalars),
                                            ::testing::Values(Rounding::nearest, Rounding::toward_zero,
                                                              Rounding::stochastic),
                                            ::testing::Bool()),
                         case_name);

template <class T>
void expect_codes(std::vector<T> row, Scalar s, Rounding rounding, bool saturate) {
  const T inf = std::numeric_limits<T>::infinity();
  const T specials[] = {T{0},      -T{0},           inf,      -inf,     std::numeric_limits<T>::quiet_NaN(),
                        T{448},    T{464},          T{480},   T{65504}, T{65520},
                        T{-65536}, T(3.3895314e38), T(3.4e38)};
  row.insert(row.begin() + 3, std::begin(specials), std::end(specials));
  std::vector<std::byte> stored(row.size() * bytes_of(s));
  for (const SimdTarget target : simd_targets()) {
    encode_row(row.data(), row.size(), stored.data(), s, {rounding, saturate, kStream}, 5, target);
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::uint64_t code = 0;
      std::memcpy(&code, stored.data() + i * bytes_of(s), bytes_of(s));
      const auto x = static_cast<double>(row[i]);
      if (s == Scalar::f64 && saturate && std::isinf(x)) continue;
      if (std::isnan(x) && s == (sizeof(T) == 4 ? Scalar::f32 : Scalar::f64)) continue;  // a copy of the bits
      const std::uint64_t expected = encode(x, s, {rounding, saturate}, kStream.bits(5 + i));
      ASSERT_EQ(code, expected) << std::hexfloat << x << " at " << i << " target " << target;
    }
  }
}

TEST_P(EncodeRow, GivesTheScalarCodesOnEveryTarget) {
  const auto [s, rounding, saturate] = GetParam();
  expect_codes(testing::random_f32(10'021, 31), s, rounding, saturate);
  const Scalar near = s == Scalar::f64 || s == Scalar::f32 ? Scalar::tf32 : s;
  const std::vector<double> wide = testing::random_near_range(near, 10'021, 32);
  expect_codes(wide, s, rounding, saturate);
  expect_codes(std::vector<float>(wide.begin(), wide.end()), s, rounding, saturate);
}

}  // namespace
}  // namespace mantissa::encode_row_test
