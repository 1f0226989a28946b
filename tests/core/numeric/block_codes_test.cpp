// Codes of block formats: their values, and that decoding what was encoded gives the values of round_blocks
// bit for bit on every instruction set.
#include "mantissa/core/numeric/block_codes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/numeric/round_block.h"
#include "core/numeric/row_functions.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::block_codes_test {
namespace {

constexpr unsigned kSeed = 20261122;

/// A row of codes.
struct Codes {
  BlockFormat format;
  std::vector<std::uint8_t> elements, scales;
  CodedRow row(bool scale_per_element = false) const {
    return {elements.data(), scales.data(), format, scale_per_element};
  }
};

std::size_t block_of(BlockFormat f) {
  return static_cast<std::size_t>(traits(f).block);
}

std::size_t element_bytes(BlockFormat f, std::size_t n) {
  return (n * static_cast<std::size_t>(traits(f).element_bits) + 7) / 8;
}

/// Encodes a row into vectors of exactly the stated sizes.
Codes encoded(BlockFormat f, const std::vector<float>& row, float tensor_scale, SimdTarget target) {
  Codes c{f, std::vector<std::uint8_t>(element_bytes(f, row.size()), 0xee),
          std::vector<std::uint8_t>((row.size() + block_of(f) - 1) / block_of(f), 0xee)};
  testing::encode_blocks(f, row.data(), row.size(), c.elements.data(), c.scales.data(), tensor_scale, target);
  return c;
}

std::vector<float> decoded(const Codes& c, std::size_t begin, std::size_t n, SimdTarget target,
                           bool scale_per_element = false) {
  std::vector<float> values(n, 77);
  decode_blocks(c.row(scale_per_element), begin, n, values.data(), target);
  return values;
}

/// The value of an element's code, by the specification.
double element_value(BlockFormat f, std::uint32_t code) {
  if (f != BlockFormat::mxfp8_e5m2 && traits(f).element_bits == 8) return decode(code, Scalar::e4m3);
  if (f == BlockFormat::mxfp8_e5m2) return decode(code, Scalar::e5m2);
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return std::copysign(kMagnitudes[code & 7], (code & 8) != 0 ? -1.0 : 1.0);
}

double scale_value(BlockFormat f, std::uint32_t code) {
  if (f == BlockFormat::nvfp4) return decode(code, Scalar::e4m3);
  return code == 255 ? std::numeric_limits<double>::quiet_NaN()
                     : std::ldexp(1.0, static_cast<int>(code) - 127);
}

/// Expects `want`, rounded to bf16.
void expect_value(float got, double want) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << got;
  } else {
    const auto rounded = static_cast<float>(round_to(want, Scalar::bf16));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(rounded)) << got << " " << want;
  }
}

class BlockCodes : public ::testing::TestWithParam<BlockFormat> {
 protected:
  static BlockFormat format() { return GetParam(); }
  static std::uint32_t codes() { return 1U << traits(format()).element_bits; }
  /// Bits of an element's code: codes[i] is element i.
  static std::vector<std::uint8_t> stored(const std::vector<std::uint32_t>& codes) {
    std::vector<std::uint8_t> bytes(element_bytes(format(), codes.size()));
    for (std::size_t i = 0; i < codes.size(); ++i) {
      if (traits(format()).element_bits == 8) {
        bytes[i] = static_cast<std::uint8_t>(codes[i]);
      } else {
        bytes[i / 2] = static_cast<std::uint8_t>(bytes[i / 2] | codes[i] << (i % 2 * 4));
      }
    }
    return bytes;
  }
};

TEST_P(BlockCodes, OfEveryElementAndScaleHaveTheSpecifiedValue) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t code = 0; code < codes(); ++code) all.push_back(code);
  for (std::uint32_t scale = 0; scale < 256; ++scale) {
    const auto byte = static_cast<std::uint8_t>(scale);
    for (const bool per_element : {false, true}) {
      const Codes c{format(), stored(all), std::vector<std::uint8_t>(all.size(), byte)};
      for (const SimdTarget target : simd_targets()) {
        const std::vector<float> values = decoded(c, 0, all.size(), target, per_element);
        for (std::size_t i = 0; i < all.size(); ++i) {
          const double want = element_value(format(), all[i]) * scale_value(format(), scale);
          // The largest scales are beyond f32, and no value that was rounded has them.
          if (std::abs(want) <= std::numeric_limits<float>::max() || std::isnan(want))
            expect_value(values[i], want);
        }
      }
    }
  }
}

TEST_P(BlockCodes, DecodeToTheValuesOfRoundBlocks) {
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  for (const std::size_t n : {1U, 2U, 15U, 16U, 17U, 31U, 32U, 33U, 64U, 255U, 257U, 1000U}) {
    for (const float spread : {0.0F, 1.0F, 30.0F}) {
      for (const float tensor_scale : {1.0F, 0.0123F}) {
        std::vector<float> row(n);
        for (float& x : row) x = normal(random) * std::exp(spread * normal(random));
        row[n / 2] = -0.0F;
        for (float& x : row) x = std::isfinite(x) ? x : 1;
        std::vector<float> want = row;
        for (std::size_t i = 0; i < n; i += block_of(format()))
          testing::round_block(format(), want.data() + i, std::min(block_of(format()), n - i), tensor_scale);
        std::vector<std::uint8_t> first;
        for (const SimdTarget target : simd_targets()) {
          const Codes c = encoded(format(), row, tensor_scale, target);
          const std::vector<float> got = decoded(c, 0, n, target);
          EXPECT_EQ(std::memcmp(got.data(), want.data(), n * sizeof(float)), 0)
              << traits(format()).name << ", " << n << " elements, spread " << spread << ", target " << target
              << ", seed " << kSeed;
          if (first.empty()) first = c.elements;
          EXPECT_EQ(c.elements, first) << "every instruction set writes the same codes";
        }
      }
    }
  }
}

TEST_P(BlockCodes, AreReadFromAnyElementOn) {
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  std::vector<float> row(333);
  for (float& x : row) x = normal(random);
  for (const SimdTarget target : simd_targets()) {
    const Codes c = encoded(format(), row, 1, target);
    const std::vector<float> all = decoded(c, 0, row.size(), target);
    for (const std::size_t begin : {0U, 1U, 7U, 16U, 31U, 33U, 300U, 332U}) {
      for (const std::size_t n : {1U, 2U, 9U, 33U, 290U}) {
        if (begin + n > row.size()) continue;
        const std::vector<float> part = decoded(c, begin, n, target);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(begin)))
            << n << " from " << begin;
      }
    }
  }
}

TEST_P(BlockCodes, RoundTheSmallestBlocksToBfloat16) {
  if (!traits(format()).power_of_two_scale) return;  // e4m3 scales are at least 2^-9
  // The smallest scale of mx is 2^-127; bf16 cannot hold 2^-9 (e4m3) or 2^-16 (e5m2) of it, but 2^-4 (e3m2).
  const float smallest =
      std::ldexp(1.0F, traits(format()).min_normal_exp - traits(format()).mantissa_bits - 127);
  const std::vector<float> row = {smallest, -3 * smallest, 0, std::ldexp(1.0F, -133), std::ldexp(1.5F, -132)};
  std::vector<float> exact = row, want;
  testing::round_block(format(), exact.data(), exact.size());
  EXPECT_EQ(exact[0], smallest);
  for (const float x : exact) want.push_back(static_cast<float>(round_to(x, Scalar::bf16)));
  EXPECT_EQ(want == exact, smallest >= std::ldexp(1.0F, -133)) << "bf16 has multiples of 2^-133";
  for (const SimdTarget target : simd_targets())
    EXPECT_EQ(decoded(encoded(format(), row, 1, target), 0, row.size(), target), want);
}

TEST_P(BlockCodes, OfBlocksThatAreNotFiniteDecodeToNan) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> row(block_of(format()) + 3, 1.0F);
    row[2] = bad;
    for (const SimdTarget target : simd_targets()) {
      const Codes c = encoded(format(), row, 1, target);
      const std::vector<float> values = decoded(c, 0, row.size(), target);
      for (std::size_t i = 0; i < row.size(); ++i) EXPECT_EQ(std::isnan(values[i]), i < block_of(format()));
      const int magnitude = traits(format()).element_bits == 8 ? 0x7f : 0x77;
      for (std::size_t i = 0; i < element_bytes(format(), block_of(format())); ++i)
        EXPECT_EQ(c.elements[i] & magnitude, 0) << "elements of zero";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, BlockCodes, ::testing::ValuesIn(kBlockFormats), [](const auto& info) {
  std::string name(traits(info.param).name);
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace mantissa::block_codes_test
