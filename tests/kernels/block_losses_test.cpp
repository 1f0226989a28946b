// Counts of what rounding to blocks loses, against round_block() of every block.
#include "mantissa/kernels/block_losses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/numeric/round_block.h"
#include "kernels/row_testing.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/kernels/scaled.h"

namespace mantissa::kernels::block_losses_test {
namespace {

using testing::contexts;
using testing::describe;
using testing::kSeed;
using testing::Tensor;

/// Every block is rounded by round_block(), whose results tell what became zero. The scale follows from the
/// formulas of the formats.
TEST(BlockLosses, AreThoseOfEachElement) {
  constexpr std::int64_t kRows = 71, kWidth = 1101;
  for (const BlockFormat format : kBlockFormats) {
    for (const bool along_rows : {false, true}) {
      for (const Scalar type : {Scalar::f32, Scalar::bf16}) {
        const BlockTraits t = traits(format);
        const float tensor_scale = t.power_of_two_scale ? 1.0F : 0.002F;
        std::mt19937 random(kSeed);
        std::normal_distribution<double> exponent(-3, 2);
        Tensor w = Tensor(type, kRows, kWidth).fill_normal(random);
        for (std::int64_t r = 0; r < kRows; ++r) {
          for (std::int64_t c = 0; c < kWidth; ++c)
            w.set(r, c,
                  r == 3 && c == 5 ? 1e4
                  : (r + c) % 7 == 0
                      ? 0
                      : w.get(r, c) * std::exp2(exponent(random) - ((r + c) % 11 == 0 ? 40 : 0)));
        }
        RangeCount expected;
        float least = std::numeric_limits<float>::infinity(), most = 0;
        const double bound = t.max_finite + std::ldexp(1.0, t.max_exp - t.mantissa_bits - 1);
        const std::int64_t lines = along_rows ? kWidth : kRows, length = along_rows ? kRows : kWidth;
        for (std::int64_t line = 0; line < lines; ++line) {
          for (std::int64_t from = 0; from < length; from += t.block) {
            const std::int64_t n = std::min<std::int64_t>(t.block, length - from);
            std::vector<float> values;
            for (std::int64_t i = from; i < from + n; ++i)
              values.push_back(static_cast<float>(along_rows ? w.get(i, line) : w.get(line, i)));
            float amax = 0;
            for (const float x : values) amax = std::max(amax, std::abs(x));
            if (amax == 0) continue;
            const float fit = amax / static_cast<float>(t.max_finite) / tensor_scale;
            const double scale = t.power_of_two_scale
                                     ? std::exp2(std::floor(std::log2(static_cast<double>(amax))) - t.max_exp)
                                     : round_to(fit, Scalar::e4m3, {.saturate = true});
            const float whole = static_cast<float>(scale) * tensor_scale;
            if (whole > 0) {
              least = std::min(least, whole);
              most = std::max(most, whole);
            }
            std::vector<float> rounded = values;
            mantissa::testing::round_block(format, rounded.data(), rounded.size(), tensor_scale);
            for (std::size_t i = 0; i < values.size(); ++i) {
              expected.flushed += values[i] != 0 && rounded[i] == 0;
              expected.saturated += whole > 0 && std::abs(values[i]) / whole > static_cast<float>(bound);
            }
          }
        }
        ASSERT_GT(expected.flushed, 0);
        for (const Context& ctx : contexts()) {
          const Layout layout{.type = Scalar::bf16, .blocks = Blocks{format, along_rows}};
          std::vector<std::byte> packed(layout.bytes(kRows, kWidth));
          pack_blocks(ctx, kRows, kWidth, w, packed.data(), *layout.blocks, tensor_scale);
          const BlockLosses lost =
              count_block_losses(ctx, w, {packed.data(), kRows, kWidth, *layout.blocks, tensor_scale});
          EXPECT_EQ(lost.range.flushed, expected.flushed) << t.name << along_rows << describe(ctx);
          EXPECT_EQ(lost.range.saturated, expected.saturated) << t.name << along_rows << describe(ctx);
          EXPECT_EQ(lost.least_scale, least) << t.name << along_rows << describe(ctx);
          EXPECT_EQ(lost.most_scale, most) << t.name << along_rows << describe(ctx);
        }
      }
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::block_losses_test
