// Blocks with shared scales: compares the vector code with the definition, and the definition with the
// specifications' rules and values computed by hand.
#include "mantissa/core/numeric/scaled.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "core/numeric/round_block.h"

namespace mantissa::scaled_test {
namespace {

TEST(BlockFormats, ParseInAnyLetterCase) {
  EXPECT_EQ(parse_block_format("MXFP8-E5M2"), BlockFormat::mxfp8_e5m2);
  EXPECT_EQ(parse_block_format("NvFp4"), BlockFormat::nvfp4);
  EXPECT_EQ(parse_block_format("mxfp"), std::nullopt);
}

constexpr const auto& kFormats = kBlockFormats;
constexpr ScaleRounding kRoundings[] = {ScaleRounding::floor, ScaleRounding::ceil, ScaleRounding::even,
                                        ScaleRounding::rceil, ScaleRounding::none};
constexpr unsigned kSeed = 20260301;

std::vector<float> rounded(BlockFormat f, std::vector<float> values, float tensor_scale = 1,
                           ScaleRounding rounding = ScaleRounding::floor) {
  testing::round_block(f, values.data(), values.size(), tensor_scale, rounding);
  return values;
}

TEST(RoundBlock, OfMxfp4EqualsAHandComputedExample) {
  // amax 5 lies in [4, 8): the scale is 2^(2 − 2) = 1, and elements are 0, 0.5, 1, 1.5, 2, 3, 4, 6.
  EXPECT_EQ(rounded(BlockFormat::mxfp4, {5, -2.5F, 0.25F, 0.75F, 1.25F, -3.5F, 0.2F, 0}),
            (std::vector<float>{4, -2, 0, 1, 1, -4, 0, 0}));
  // amax 7 rounds to 8, beyond 6, and saturates. The scale for 0.07 is 2^(−4 − 2).
  EXPECT_EQ(rounded(BlockFormat::mxfp4, {7, 5.5F}), (std::vector<float>{6, 6}));
  EXPECT_EQ(rounded(BlockFormat::mxfp4, {0.07F, 0.01F}), (std::vector<float>{0.0625F, 0.0078125F}));
}

TEST(RoundBlock, OfMxfp8KeepsThreeBitsBelowTheLargest) {
  // amax 448 · 2^4: the scale is 2^(12 − 8).
  EXPECT_EQ(rounded(BlockFormat::mxfp8, {7168, 1000, 17, 0.01F}), (std::vector<float>{7168, 1024, 16, 0}));
  EXPECT_EQ(rounded(BlockFormat::mxfp8, {7680}), (std::vector<float>{7168})) << "saturates beyond 448";
}

TEST(RoundBlock, OfMxfp8WithE5m2KeepsTwoBitsAndSmallerElements) {
  // amax 57344: the scale is 1. 17 lies between 16 and 20; 2^-16 is the smallest element.
  EXPECT_EQ(rounded(BlockFormat::mxfp8_e5m2, {57344, 1000, 17, 0x1p-16F, 0x1p-18F}),
            (std::vector<float>{57344, 1024, 16, 0x1p-16F, 0}));
  EXPECT_EQ(rounded(BlockFormat::mxfp8_e5m2, {65000}), (std::vector<float>{57344}))
      << "saturates beyond 57344";
}

TEST(RoundBlock, OfMxfp6EqualsAHandComputedExample) {
  // e2m3: amax 7 lies in [4, 8): the scale is 2^(2 − 2). Elements of [4, 8) are 0.5 apart, the smallest
  // 0.125.
  EXPECT_EQ(rounded(BlockFormat::mxfp6_e2m3, {7.75F, -5.3F, 1.3F, 0.07F, 0.06F}),
            (std::vector<float>{7.5F, -5.5F, 1.25F, 0.125F, 0}));
  // e3m2: amax 30 lies in [16, 32): the scale is 2^(4 − 4). The largest element is 28, the smallest 1/16.
  EXPECT_EQ(rounded(BlockFormat::mxfp6_e3m2, {30, -19, 5.4F, 0.04F, 0.03F}),
            (std::vector<float>{28, -20, 5, 0.0625F, 0}));
}

// Of e2m1, whose largest value is 6 = 1.5 · 2^2: exponents of the scale for a largest magnitude.
TEST(ScaleRounding, OfMxfp4EqualsValuesComputedByHand) {
  struct Example {
    float amax;
    int floor, ceil, even, rceil;
  };
  for (const Example& e : {Example{4, 0, 0, 0, 0},
                           {4.0000005F, 0, 1, 0, 0},
                           {6, 0, 1, 0, 0},
                           {6.0000005F, 0, 1, 0, 1},
                           {6.9999995F, 0, 1, 0, 1},
                           {7, 0, 1, 1, 1},
                           {7.9999995F, 0, 1, 1, 1},
                           {8, 1, 1, 1, 1},
                           {12, 1, 2, 1, 1},
                           {0, -127, -127, -127, -127},
                           {0x1p-149F, -127, -127, -127, -127},
                           {0x1p-125F, -127, -127, -127, -127},
                           {0x1.8p-125F, -127, -126, -127, -127},
                           {0x1.8001p-125F, -127, -126, -127, -126},
                           {0x1.fffffep127F, 125, 126, 1000, 126}}) {
    const BlockTraits t = traits(BlockFormat::mxfp4);
    EXPECT_EQ(testing::scale_exponent(t, e.amax, ScaleRounding::floor), e.floor) << e.amax;
    EXPECT_EQ(testing::scale_exponent(t, e.amax, ScaleRounding::ceil), e.ceil) << e.amax;
    EXPECT_EQ(testing::scale_exponent(t, e.amax, ScaleRounding::even), e.even) << e.amax;
    EXPECT_EQ(testing::scale_exponent(t, e.amax, ScaleRounding::rceil), e.rceil) << e.amax;
  }
}

TEST(ScaleRounding, ByRceilNeverSaturates) {
  std::mt19937 random(kSeed);
  std::uniform_real_distribution<float> mantissa(1, 2);
  for (const BlockFormat f : kFormats) {
    if (!traits(f).power_of_two_scale) continue;
    for (int trial = 0; trial < 1000; ++trial) {
      const float amax = std::ldexp(mantissa(random), trial % 200 - 100);
      const float got = rounded(f, {amax}, 1, ScaleRounding::rceil)[0];
      EXPECT_LE(std::abs(got - amax), amax * std::ldexp(0.5F, -traits(f).mantissa_bits)) << amax;
    }
  }
}

/// Zero, infinity and nan, subnormals, powers of two and their neighbours, the largest values of elements and
/// theirs, each first in a block of values of other magnitudes.
TEST(ScaleRounding, OfAllSpecialValuesEqualsTheDefinitionOnEveryInstructionSet) {
  std::vector<float> special = {0,
                                -0.0F,
                                0x1p-149F,
                                0x1.8p-127F,
                                0x1.fffffcp-127F,
                                0x1.fffffep127F,
                                std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()};
  for (int exponent = -140; exponent < 128; ++exponent) {
    for (const double factor : {1.0, 1.25, 1.5, 1.75, 1.875, 1.9375, 1.96875}) {
      const auto x = static_cast<float>(std::ldexp(factor, exponent));
      special.insert(special.end(),
                     {x, std::nextafter(x, 0.0F), std::nextafter(x, std::numeric_limits<float>::infinity())});
    }
  }
  for (const BlockFormat f : kFormats) {
    const auto block = static_cast<std::size_t>(traits(f).block);
    std::vector<float> row;
    for (const float x : special) {
      for (std::size_t i = 0; i < block; ++i)
        row.push_back((i % 2 == 0 ? x : -x) * (i == 0 ? 1 : std::ldexp(1.0F, -static_cast<int>(i)) * 0.9F));
    }
    for (const ScaleRounding rounding : kRoundings) {
      std::vector<float> want = row;
      for (std::size_t i = 0; i < row.size(); i += block)
        testing::round_block(f, want.data() + i, block, 1, rounding);
      for (const SimdTarget target : simd_targets()) {
        std::vector<float> got = row;
        round_blocks(f, got.data(), got.size(), 1, target, rounding);
        for (std::size_t i = 0; i < row.size(); ++i) {
          const bool same = std::memcmp(&got[i], &want[i], sizeof(float)) == 0;
          ASSERT_TRUE(same || (std::isnan(got[i]) && std::isnan(want[i])))
              << traits(f).name << ", rounding " << static_cast<int>(rounding) << ", target " << target
              << ", block of " << row[i / block * block] << ", element " << row[i] << ": " << got[i]
              << ", expected " << want[i];
        }
      }
    }
  }
}

TEST(RoundBlock, OfNvfp4HasAnE4m3Scale) {
  // 6 / 6 = 1; the elements lie on the grid of e2m1.
  EXPECT_EQ(rounded(BlockFormat::nvfp4, {6, 2.6F, -0.3F}), (std::vector<float>{6, 3, -0.5F}));
  // 10 / 6 = 1.667 rounds to 1.625, and 10 / 1.625 = 6.15 saturates at 6.
  EXPECT_EQ(rounded(BlockFormat::nvfp4, {10, 1.7F}), (std::vector<float>{9.75F, 1.625F}));
  // Under a tensor scale of 2^-10, values 2^-10 times as large have the same codes; the result omits the
  // scale.
  EXPECT_EQ(
      rounded(BlockFormat::nvfp4, {std::ldexp(6.0F, -10), std::ldexp(2.6F, -10)}, std::ldexp(1.0F, -10)),
      (std::vector<float>{6, 3}));
}

TEST(RoundBlock, HasAtMostAsManyValuesAsTheFormatHasCodes) {
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  for (const auto& [format, codes] : {std::pair{BlockFormat::mxfp8, 253U},
                                      {BlockFormat::mxfp8_e5m2, 247U},
                                      {BlockFormat::mxfp6_e2m3, 63U},
                                      {BlockFormat::mxfp6_e3m2, 63U},
                                      {BlockFormat::mxfp4, 15U},
                                      {BlockFormat::nvfp4, 15U}}) {
    std::set<float> seen;
    for (int trial = 0; trial < 20000; ++trial) {
      std::vector<float> block(static_cast<std::size_t>(traits(format).block));
      for (float& x : block) x = std::exp(3 * normal(random)) * (normal(random) > 0 ? 1.0F : -1.0F);
      block[0] = 6 * 64;  // gives every block the same amax and scale
      for (float& x : block) x = std::clamp(x, -384.0F, 384.0F);
      for (const float x : rounded(format, block)) seen.insert(x);
    }
    EXPECT_LE(seen.size(), codes);
    EXPECT_GE(seen.size(), codes / 2) << "the samples reach most codes";
  }
}

TEST(RoundBlock, HasErrorsWithinHalfAStepOfTheLargestElement) {
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  for (const BlockFormat f : kFormats) {
    const BlockTraits t = traits(f);
    for (int trial = 0; trial < 2000; ++trial) {
      std::vector<float> block(static_cast<std::size_t>(t.block));
      for (float& x : block) x = normal(random);
      const std::vector<float> to = rounded(f, block);
      float amax = 0;
      for (const float x : block) amax = std::max(amax, std::abs(x));
      for (std::size_t i = 0; i < block.size(); ++i) {
        // Elements of the topmost binade are 2^-mantissa_bits of it apart, but the last ones saturate: in mx
        // up to 2^(max_exp + 1) / max_finite, in nvfp4 by the rounding of the scale, 1/16.
        const double top =
            t.power_of_two_scale ? std::ldexp(1.0, t.max_exp + 1) / t.max_finite - 1 : 1.0 / 16;
        EXPECT_LE(std::abs(to[i] - block[i]),
                  amax * std::max(top, std::ldexp(1.0, -t.mantissa_bits - 1)) * 1.001);
      }
    }
  }
}

TEST(RoundBlock, TurnsNonfiniteBlocksIntoNanAndKeepsZeros) {
  for (const BlockFormat f : kFormats) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      for (const float x : rounded(f, {1, bad, 2})) EXPECT_TRUE(std::isnan(x));
    }
    for (const float x : rounded(f, {0, -0.0F, 0})) EXPECT_EQ(x, 0);
  }
}

TEST(RoundBlocks, EqualTheDefinitionOnEveryInstructionSet) {
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  for (const BlockFormat f : kFormats) {
    for (const std::size_t n : {1U, 15U, 16U, 33U, 64U, 1000U}) {
      for (const float spread : {0.0F, 1.0F, 20.0F}) {
        for (const float tensor_scale : {1.0F, 0.0123F}) {
          std::vector<float> row(n);
          for (float& x : row) x = normal(random) * std::exp(spread * normal(random));
          row[n / 2] = 0;
          std::vector<float> want = row;
          const auto block = static_cast<std::size_t>(traits(f).block);
          for (std::size_t i = 0; i < n; i += block)
            testing::round_block(f, want.data() + i, std::min(block, n - i), tensor_scale);
          for (const SimdTarget target : simd_targets()) {
            std::vector<float> got = row;
            round_blocks(f, got.data(), n, tensor_scale, target);
            EXPECT_EQ(std::memcmp(got.data(), want.data(), n * sizeof(float)), 0)
                << traits(f).name << ", " << n << " elements, spread " << spread << ", target " << target;
          }
        }
      }
    }
  }
}

TEST(TensorScales, MapTheLargestMagnitudeToTheLargestFiniteValue) {
  EXPECT_EQ(tensor_scale(Scalar::e4m3, 7, 0), 64);
  EXPECT_EQ(tensor_scale(Scalar::e4m3, 7, 2), 16);
  EXPECT_EQ(tensor_scale(Scalar::e5m2, 57344, 0), 1);
  EXPECT_EQ(tensor_scale(Scalar::e4m3, 0, 0), 1) << "no magnitude recorded yet";
  EXPECT_EQ(nvfp4_tensor_scale(2688), 1);
  EXPECT_EQ(nvfp4_tensor_scale(0), 1);
}

}  // namespace
}  // namespace mantissa::scaled_test
