// Blocks of training recipes: scales that squares or 128 elements share, and gradients that round
// stochastically. All are compared with their definitions, one value at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/numeric/round_block.h"
#include "kernels/block_testing.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::kernels::block_rounding_test {
namespace {

using testing::Batch;
using testing::best;
using testing::contexts;
using testing::describe;
using testing::kSeed;
using testing::matrix;
using testing::packed;
using testing::rounded;
using testing::Tensor;

constexpr std::uint64_t kName = 0x0123456789ABCDEF;
constexpr ScaleRounding kRoundings[] = {ScaleRounding::floor, ScaleRounding::ceil, ScaleRounding::even,
                                        ScaleRounding::rceil};

/// Returns x as an element of a block whose largest magnitude is `most`.
float in_block(BlockFormat f, double x, double most, float tensor_scale, ScaleRounding rounding) {
  float block[] = {static_cast<float>(x), static_cast<float>(most)};
  mantissa::testing::round_block(f, block, 2, tensor_scale, rounding);
  return block[0];
}

TEST(SquareScales, GiveBothCopiesOfAWeightEqualValues) {
  for (const auto& [format, length] : {std::pair{BlockFormat::nvfp4, 16},
                                       {BlockFormat::nvfp4, 128},
                                       {BlockFormat::mxfp8, 32},
                                       {BlockFormat::mxfp8, 128},
                                       {BlockFormat::mxfp6_e3m2, 128}}) {
    for (const auto& [rows, columns] : {std::pair{16, 16}, {17, 33}, {260, 300}, {5, 2100}, {300, 7}}) {
      const Tensor w = matrix(rows, columns);
      const float tensor_scale = format == BlockFormat::nvfp4 ? 0.25F : 1.0F;
      std::map<std::pair<std::int64_t, std::int64_t>, double> most;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          double& of_square = most[{r / length, c / length}];
          of_square = std::max(of_square, std::abs(w.get(r, c)));
        }
      }
      const BlockRounding how{.scaling = {ScaleRounding::rceil, length, true}};
      for (const Context& ctx : contexts()) {
        const Tensor along = packed(ctx, w, {format, false}, tensor_scale, how),
                     across = packed(ctx, w, {format, true}, tensor_scale, how);
        ASSERT_TRUE(along == across) << rows << " × " << columns << ", " << describe(ctx);
        ASSERT_TRUE(along == rounded(ctx, w, {format, false}, tensor_scale, how));
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < columns; ++c)
            ASSERT_EQ(along.get(r, c), in_block(format, w.get(r, c), most[{r / length, c / length}],
                                                tensor_scale, ScaleRounding::rceil))
                << r << ", " << c;
        }
      }
    }
  }
}

/// Returns [first, last) of the elements that share a scale with element i of n.
std::pair<std::int64_t, std::int64_t> sharing(std::int32_t length, std::int64_t i, std::int64_t n) {
  if (length == kWholeSum) return {0, n};
  return {i / length * length, std::min(n, i / length * length + length)};
}

class LongScales : public ::testing::TestWithParam<std::int32_t> {};

TEST_P(LongScales, AreSharedAlongTheSum) {
  const std::int32_t length = GetParam();
  const Batch batch({5, 300});
  const Tensor x = matrix(batch.tokens, 1333);  // more than the kernels load at a time
  for (const BlockFormat format : {BlockFormat::mxfp8, BlockFormat::mxfp8_e5m2, BlockFormat::nvfp4}) {
    for (const ScaleRounding rounding : kRoundings) {
      const BlockRounding how{.scaling = {rounding, length}};
      const Tensor features = packed(best(), x, {format, false}, 1, how),
                   weight = packed(best(), x, {format, true}, 1, how),
                   tokens = rounded(best(), x, {format, true}, 1, how, batch.rows);
      for (const Row& row : batch.rows) {
        for (std::int64_t t = row.begin; t < row.begin + row.length; t += 3) {
          for (std::int64_t c = 0; c < x.columns; c += 31) {
            double of_features = 0, of_tokens = 0, of_rows = 0;
            const auto columns = sharing(length, c, x.columns), rows = sharing(length, t, x.rows);
            for (std::int64_t i = columns.first; i < columns.second; ++i)
              of_features = std::max(of_features, std::abs(x.get(t, i)));
            for (std::int64_t i = rows.first; i < rows.second; ++i)
              of_rows = std::max(of_rows, std::abs(x.get(i, c)));
            const auto some = sharing(length, t - row.begin, row.length);
            for (std::int64_t i = some.first; i < some.second; ++i)
              of_tokens = std::max(of_tokens, std::abs(x.get(row.begin + i, c)));
            ASSERT_EQ(features.get(t, c), in_block(format, x.get(t, c), of_features, 1, rounding));
            ASSERT_EQ(weight.get(t, c), in_block(format, x.get(t, c), of_rows, 1, rounding));
            ASSERT_EQ(tokens.get(t, c), in_block(format, x.get(t, c), of_tokens, 1, rounding));
          }
        }
      }
      for (const Context& ctx : contexts()) {
        EXPECT_TRUE(packed(ctx, x, {format, false}, 1, how) == features) << describe(ctx);
        EXPECT_TRUE(packed(ctx, x, {format, true}, 1, how) == weight) << describe(ctx);
        EXPECT_TRUE(rounded(ctx, x, {format, false}, 1, how) == features) << describe(ctx);
        EXPECT_TRUE(rounded(ctx, x, {format, true}, 1, how, batch.rows) == tokens) << describe(ctx);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, LongScales, ::testing::Values(128, kWholeSum),
                         [](const auto& length) { return length.param < 0 ? "All" : "Of128"; });

/// Written by tools/golden_deepseek.py.
TEST(ScalesInF32, AreThoseOfDeepSeekV3AndOfRows) {
  const io::SafetensorsReader file(std::filesystem::path(MANTISSA_SOURCE_DIR) /
                                   "tests/golden/deepseek.safetensors");
  const auto golden = [&](const std::string& name) {
    Tensor t(Scalar::f32, 131, 136);
    file.read(*file.find(name), std::span(t.bytes));
    return t;
  };
  const Tensor x = golden("x");
  const auto how = [](std::int32_t length, bool square) {
    return BlockRounding{.scaling = {ScaleRounding::none, length, square}};
  };
  for (const Context& ctx : contexts()) {
    constexpr auto kFormat = BlockFormat::mxfp8;
    EXPECT_TRUE(rounded(ctx, x, {kFormat, false}, 1, how(128, false)) == golden("features")) << describe(ctx);
    EXPECT_TRUE(rounded(ctx, x, {kFormat, true}, 1, how(128, false)) == golden("tokens")) << describe(ctx);
    EXPECT_TRUE(rounded(ctx, x, {kFormat, false}, 1, how(128, true)) == golden("weight")) << describe(ctx);
    EXPECT_TRUE(rounded(ctx, x, {kFormat, false}, 1, how(kWholeSum, false)) == golden("rows"))
        << describe(ctx);
  }
}

/// Two sequences, the second of which continues at position 40.
struct Gradients {
  explicit Gradients(std::vector<std::int64_t> lengths = {37, 70}) : batch(std::move(lengths)) {
    for (std::size_t i = 0; i < batch.segments.size(); ++i) batch.segments[i].sequence = 17 * i + 2;
    batch.segments.back().position = 40;
    extent = batch.extent();
    extent.seed = 99;
  }
  std::uint32_t bits(std::int64_t token, std::int64_t column, std::int64_t width) const {
    for (const Segment& s : batch.segments) {
      if (token < s.begin || token >= s.begin + s.length) continue;
      const RandomStream stream(extent.seed, RandomUse::activation, kName, s.sequence);
      return stream.bits(static_cast<std::uint64_t>((s.position + token - s.begin) * width + column));
    }
    return 0;
  }
  BlockRounding how(ScaleRounding rounding) const {
    return {.scaling = {rounding}, .stochastic = &extent, .name = kName};
  }
  Batch batch;
  Extent extent;
};

TEST(StochasticBlocks, RoundByTheBitsOfEachElement) {
  const Gradients g;
  const Tensor x = matrix(g.batch.tokens, 1037);
  for (const BlockFormat f : kBlockFormats) {
    const BlockTraits t = traits(f);
    const float tensor_scale = t.power_of_two_scale ? 1.0F : 0.125F;
    const BlockRounding how = g.how(ScaleRounding::rceil);
    const Tensor features = packed(best(), x, {f, false}, tensor_scale, how),
                 tokens = rounded(best(), x, {f, true}, tensor_scale, how, g.batch.rows);
    const auto want = [&](std::int64_t r, std::int64_t c, double most) {
      // The scale is what remains of the largest element.
      float scale = std::ldexp(
          1.0F, mantissa::testing::scale_exponent(t, static_cast<float>(most), ScaleRounding::rceil));
      if (!t.power_of_two_scale) {
        const float fit = static_cast<float>(most) / static_cast<float>(t.max_finite) / tensor_scale;
        scale = static_cast<float>(round_to(fit, Scalar::e4m3, {.saturate = true}));
      }
      const float y = static_cast<float>(x.get(r, c)) / (scale * tensor_scale);
      return mantissa::testing::round_element(t, y, g.bits(r, c, x.columns)) * scale;
    };
    for (const Row& row : g.batch.rows) {
      for (std::int64_t r = row.begin; r < row.begin + row.length; r += 3) {
        for (std::int64_t c = 0; c < x.columns; c += 5) {
          double of_features = 0, of_tokens = 0;
          for (std::int64_t i = c / t.block * t.block;
               i < std::min<std::int64_t>(x.columns, c / t.block * t.block + t.block); ++i)
            of_features = std::max(of_features, std::abs(x.get(r, i)));
          const std::int64_t first = row.begin + (r - row.begin) / t.block * t.block;
          for (std::int64_t i = first; i < std::min<std::int64_t>(row.begin + row.length, first + t.block);
               ++i)
            of_tokens = std::max(of_tokens, std::abs(x.get(i, c)));
          ASSERT_EQ(features.get(r, c), want(r, c, of_features)) << t.name << " " << r << ", " << c;
          ASSERT_EQ(tokens.get(r, c), want(r, c, of_tokens)) << t.name << " " << r << ", " << c;
        }
      }
    }
    for (const Context& ctx : contexts()) {
      EXPECT_TRUE(packed(ctx, x, {f, false}, tensor_scale, how) == features) << describe(ctx);
      EXPECT_TRUE(rounded(ctx, x, {f, false}, tensor_scale, how) == features) << describe(ctx);
      EXPECT_TRUE(rounded(ctx, x, {f, true}, tensor_scale, how, g.batch.rows) == tokens) << describe(ctx);
    }
  }
}

TEST(StochasticBlocks, DoNotDependOnTheRestOfTheBatch) {
  const Gradients both;
  const Tensor x = matrix(both.batch.tokens, 100);
  Gradients second({70});
  second.batch.segments[0].sequence = both.batch.segments[1].sequence;
  Tensor part(Scalar::f32, 70, 100);
  for (std::int64_t r = 0; r < 70; ++r) {
    for (std::int64_t c = 0; c < 100; ++c) part.set(r, c, x.get(37 + r, c));
  }
  for (const bool tokens : {false, true}) {
    const Blocks blocks{BlockFormat::mxfp4, tokens};
    const Tensor whole = rounded(best(), x, blocks, 1, both.how(ScaleRounding::floor), both.batch.rows),
                 alone =
                     rounded(best(), part, blocks, 1, second.how(ScaleRounding::floor), second.batch.rows);
    for (std::int64_t r = 0; r < 70; ++r) {
      for (std::int64_t c = 0; c < 100; ++c) ASSERT_EQ(alone.get(r, c), whole.get(37 + r, c));
    }
  }
}

/// One row of values in every token: the mean over tokens is the value, within 4 standard errors. Values that
/// saturate are not unbiased: nvfp4 rounds scales to nearest, so they can be too small for the largest value.
TEST(StochasticBlocks, AreUnbiased) {
  constexpr std::int64_t kTokens = 4096, kWidth = 64;
  const Gradients g({kTokens});
  const Tensor row = matrix(1, kWidth);
  Tensor x(Scalar::f32, kTokens, kWidth);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t c = 0; c < kWidth; ++c) x.set(t, c, row.get(0, c));
  }
  for (const BlockFormat f : kBlockFormats) {
    const Tensor got = packed(best(), x, {f, false}, 1, g.how(ScaleRounding::rceil));
    int checked = 0;
    for (std::int64_t c = 0; c < kWidth; ++c) {
      double sum = 0, squares = 0, most = 0;
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const double error = got.get(t, c) - x.get(t, c);
        sum += error;
        squares += error * error;
        most = std::max(most, std::abs(got.get(t, c)));
      }
      if (most < std::abs(x.get(0, c))) continue;  // saturated
      const double mean = sum / kTokens, deviation = std::sqrt(squares / kTokens - mean * mean);
      EXPECT_LE(std::abs(mean), 4 * deviation / std::sqrt(kTokens) + 1e-12)
          << traits(f).name << ", " << x.get(0, c) << ", seed " << g.extent.seed;
      ++checked;
    }
    EXPECT_GE(checked, kWidth * 9 / 10) << traits(f).name;
  }
}

TEST(StochasticElements, OfATensorWithAScaleRoundByTheBitsOfEachElement) {
  const Gradients g;
  const Tensor x = matrix(g.batch.tokens, 1037);
  StoreScaled how;
  how.rounding = g.how(ScaleRounding::floor);
  for (const Scalar type : {Scalar::e5m2, Scalar::e4m3}) {
    TensorScale scale{.scale = 0.37F, .unscale = 1 / 0.37F};
    for (const Context& ctx : contexts()) {
      Tensor got(type, x.rows, x.columns);
      store_scaled(ctx, x.rows, x.columns, x, got, how, &scale);
      for (std::int64_t r = 0; r < x.rows; r += 5) {
        for (std::int64_t c = 0; c < x.columns; ++c) {
          const float y = static_cast<float>(x.get(r, c)) * 0.37F;
          ASSERT_EQ(got.get(r, c), round_to(y, type, {Rounding::stochastic, true}, g.bits(r, c, x.columns)))
              << describe(ctx) << " " << r << ", " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::block_rounding_test
