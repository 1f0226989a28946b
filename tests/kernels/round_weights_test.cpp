// Weights rounded on all threads: rows, columns, and conversions on the way.
#include "mantissa/kernels/round_weights.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/row_testing.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/scaled.h"

namespace mantissa::kernels::round_weights_test {
namespace {

constexpr std::size_t kRows = 192, kWidth = 320;

std::vector<float> weights() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(kRows * kWidth);
  for (float& v : values) v = normal(random);
  return values;
}

float tensor_scale_of(WeightFormat f, const std::vector<float>& values) {
  float largest = 0;
  for (const float x : values) largest = std::max(largest, std::abs(x));
  return scales_tensor(f) ? nvfp4_tensor_scale(largest) : 1;
}

TEST(RoundWeights, RoundsEachRowOrColumnAlone) {
  const std::vector<float> values = weights();
  for (const WeightFormat format : std::span(kWeightFormats).subspan(1)) {
    const float scale = tensor_scale_of(format, values);
    for (const bool transposed : {false, true}) {
      std::vector<float> want(values.size());
      const std::size_t lines = transposed ? kWidth : kRows, length = transposed ? kRows : kWidth;
      for (std::size_t l = 0; l < lines; ++l) {
        const auto at = [&](std::size_t i) { return transposed ? i * kWidth + l : l * kWidth + i; };
        std::vector<float> line(length);
        for (std::size_t i = 0; i < length; ++i) line[i] = values[at(i)];
        mantissa::round_weights(format, line.data(), length, scale);
        for (std::size_t i = 0; i < length; ++i) want[at(i)] = line[i];
      }
      for (const Context& ctx : kernels::testing::contexts()) {
        std::vector<float> got(values.size());
        round_weights(ctx, kRows, kWidth, {values.data(), Scalar::f32, kWidth},
                      {got.data(), Scalar::f32, kWidth}, {format, transposed});
        ASSERT_EQ(got, want) << name(format) << (transposed ? ", columns, " : ", rows, ")
                             << kernels::testing::describe(ctx);
      }
    }
  }
}

TEST(RoundWeights, RoundsTheResultToTheTypeOfTheCopy) {
  const std::vector<float> values = weights();
  std::vector<float> wide(values.size());
  std::vector<std::uint16_t> narrow(values.size()), expected(values.size());
  const ConstMatrix from{values.data(), Scalar::f32, kWidth};
  round_weights({}, kRows, kWidth, from, {wide.data(), Scalar::f32, kWidth}, {WeightFormat::q4_0});
  round_weights({}, kRows, kWidth, from, {narrow.data(), Scalar::bf16, kWidth}, {WeightFormat::q4_0});
  store_row(wide.data(), wide.size(), expected.data(), Scalar::bf16, 0);
  EXPECT_EQ(narrow, expected);
}

}  // namespace
}  // namespace mantissa::kernels::round_weights_test
