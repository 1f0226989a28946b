// Rounding of weights to the formats in which they are served: rounded values are exact, and the same on all
// instruction sets.
#include "mantissa/core/numeric/weight_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "mantissa/core/numeric/quantize_blocks.h"
#include "mantissa/core/numeric/scaled.h"

namespace mantissa::weight_format_test {
namespace {

constexpr std::size_t kBlock = 64;  // a multiple of all blocks

/// Returns the tensor scale of `values` under `f`.
float scale_of(WeightFormat f, const std::vector<float>& values) {
  float largest = 0;
  for (const float x : values) largest = std::max(largest, std::isfinite(x) ? std::abs(x) : 0);
  return scales_tensor(f) ? nvfp4_tensor_scale(largest) : 1;
}

std::vector<float> rounded(WeightFormat f, std::vector<float> values, SimdTarget target = kBestTarget) {
  const float scale = scale_of(f, values);
  round_weights(f, values.data(), values.size(), scale, target);
  return values;
}

/// Blocks of normal values at many magnitudes, of zeros, with a negative and a positive largest value, of
/// equal values, of one value, and of values whose f16 scales are subnormal or zero.
std::vector<float> samples(float least) {
  std::mt19937 random(20261127);
  std::normal_distribution<float> normal;
  std::vector<float> all;
  const auto block = [&](const auto& value) {
    for (std::size_t i = 0; i < kBlock; ++i) all.push_back(value(i));
  };
  for (int power = -30; power <= 12; ++power) {
    const float size = std::ldexp(1.0F, power);
    if (size < least) continue;
    block([&](std::size_t) { return normal(random) * size; });
    block([&](std::size_t i) { return i % 32 == 5 ? -4 * size : normal(random) * size / 2; });
    block([&](std::size_t i) { return i % 32 == 5 ? 4 * size : normal(random) * size / 2; });
    block([&](std::size_t i) { return i == 9 ? -size : 0; });
    block([&](std::size_t) { return size; });
    block([&](std::size_t i) { return i % 2 == 0 ? -size : size; });
  }
  block([](std::size_t) { return 0.0F; });
  block([](std::size_t) { return -0.0F; });
  return all;
}

class WeightFormats : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(WeightFormats, HoldTheirOwnValues) {
  // The tensor scale of nvfp4 may change by a unit in its last place, and scales of blocks below the normal
  // numbers of e4m3 are too coarse to be found again.
  const bool nvfp4 = scales_tensor(GetParam());
  for (const SimdTarget target : simd_targets()) {
    const std::vector<float> once = rounded(GetParam(), samples(nvfp4 ? 1.0F : 0.0F), target);
    const std::vector<float> twice = rounded(GetParam(), once, target);
    for (std::size_t i = 0; i < once.size(); ++i)
      ASSERT_LE(std::abs(twice[i] - once[i]), nvfp4 ? std::abs(once[i]) * 0x1p-22F : 0.0F) << "element " << i;
  }
}

TEST_P(WeightFormats, HaveTheSameBitsOnAllInstructionSets) {
  const std::vector<float> best = rounded(GetParam(), samples(0));
  for (const SimdTarget target : simd_targets()) {
    const std::vector<float> other = rounded(GetParam(), samples(0), target);
    for (std::size_t i = 0; i < best.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(other[i]), std::bit_cast<std::uint32_t>(best[i]))
          << "element " << i;
  }
}

TEST_P(WeightFormats, KeepBlocksApart) {
  const std::vector<float> values = samples(0);
  const float scale = scale_of(GetParam(), values);
  const std::vector<float> whole = rounded(GetParam(), values);
  const std::size_t block = block_of(GetParam());
  std::vector<float> parts = values;
  for (std::size_t at = 0; at < parts.size(); at += block)
    round_weights(GetParam(), parts.data() + at, block, scale);
  EXPECT_EQ(parts, whole);
}

TEST_P(WeightFormats, ErrLessThanHalfAStepOfTheLargestValue) {
  // The relative distance of neighbours near the largest value, as a share of it.
  const double step = GetParam() == WeightFormat::q8_0                                         ? 1.0 / 127
                      : GetParam() == WeightFormat::mxfp4 || GetParam() == WeightFormat::nvfp4 ? 1.0 / 2
                      : GetParam() == WeightFormat::nf4                                        ? 0.32
                                                                                               : 1.0 / 7;
  const std::vector<float> values = samples(1), after = rounded(GetParam(), values);
  const std::size_t block = block_of(GetParam());
  for (std::size_t at = 0; at < values.size(); at += block) {
    float largest = 0;
    for (std::size_t i = at; i < at + block; ++i) largest = std::max(largest, std::abs(values[i]));
    for (std::size_t i = at; i < at + block; ++i)
      ASSERT_LE(std::abs(after[i] - values[i]), largest * step) << "element " << i;
  }
}

TEST_P(WeightFormats, MakeBlocksWithInfinitiesAndNanToNan) {
  for (const float broken : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(3 * kBlock, 0.5F);
    values[kBlock + 3] = broken;
    const std::vector<float> after = rounded(GetParam(), values);
    const std::size_t block = block_of(GetParam());
    for (std::size_t i = 0; i < after.size(); ++i)
      EXPECT_EQ(std::isnan(after[i]), i >= kBlock && i < kBlock + block) << "element " << i;
  }
}

TEST_P(WeightFormats, ParseFromTheirNames) {
  const std::string text(name(GetParam()));
  EXPECT_EQ(parse_weight_format(text), GetParam());
  std::string capitals = text;
  for (char& c : capitals) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  EXPECT_EQ(parse_weight_format(capitals), GetParam());
  EXPECT_EQ(parse_weight_format(text + "x"), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Formats, WeightFormats, ::testing::ValuesIn(std::span(kWeightFormats).subspan(1)),
                         [](const auto& info) {
                           std::string text(name(info.param));
                           std::ranges::replace(text, '-', '_');
                           return text;
                         });

TEST(WeightFormat, ScaleOfQ4HasTheSignOfTheLargestValue) {
  std::vector<float> values(32);
  values[3] = -8;
  values[4] = 7;
  EXPECT_EQ(rounded(WeightFormat::q4_0, values), values) << "codes 0 and 15 under the scale 1";
  values[3] = 8;
  values[4] = -7;
  EXPECT_EQ(rounded(WeightFormat::q4_0, values), values) << "codes 0 and 15 under the scale -1";
}

TEST(WeightFormat, Int4CodesEndAtSeven) {
  std::vector<float> values(32);
  for (std::size_t i = 0; i < 15; ++i) values[i] = static_cast<float>(i) - 7;
  EXPECT_EQ(rounded(WeightFormat::int4_32, values), values);
  values[20] = 1.5F;
  values[21] = -2.5F;
  const std::vector<float> after = rounded(WeightFormat::int4_32, values);
  EXPECT_EQ(after[20], 2.0F) << "halves round to even codes";
  EXPECT_EQ(after[21], -2.0F);
}

TEST(WeightFormat, ScalesBeyondF16MakeNan) {
  for (const auto& [format, largest] :
       {std::pair{WeightFormat::q4_0, 524'100.0F}, std::pair{WeightFormat::q8_0, 8'321'000.0F}}) {
    std::vector<float> values(32, 1);
    values[7] = largest;
    EXPECT_TRUE(std::isfinite(rounded(format, values)[7])) << name(format);
    values[7] = largest * 1.001F;
    EXPECT_TRUE(std::isnan(rounded(format, values)[0])) << name(format);
  }
}

}  // namespace
}  // namespace mantissa::weight_format_test
