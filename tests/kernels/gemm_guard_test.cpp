// Units that flush subnormal numbers to zero compute every block without one, and no other.
#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/gemm_case.h"
#include "mantissa/kernels/guard_count.h"

namespace mantissa::kernels::gemm_guard_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

constexpr Formats kBf16ToF32 = {Scalar::bf16, Scalar::bf16, Scalar::bf16, Scalar::f32};

std::vector<Context> guarded_contexts() {
  std::vector<Context> all;
  if (is_supported(Simd::avx512_bf16)) all.push_back({.simd = Simd::avx512_bf16});
  for (const Simd simd : testing::tile_simds()) all.push_back({.simd = simd});
  return all;
}

/// Fills columns [begin, end) with numbers from 2^exponent to 2^(exponent + 1), either sign.
void fill_binade(Tensor& t, int exponent, std::int64_t begin, std::int64_t end) {
  std::mt19937 random(kSeed);
  for (std::int64_t i = 0; i < t.rows; ++i) {
    for (std::int64_t j = begin; j < end; ++j) {
      const double x = std::ldexp(1 + std::ldexp(static_cast<double>(random() % 128), -7), exponent);
      t.set(i, j, random() % 2 == 0 ? x : -x);
    }
  }
}

Gemm tile_order(const Case& x) {
  Gemm g = x.g;
  g.accumulator.order = SumOrder::tile;
  return g;
}

Tensor result(const Case& x, Gemm g, const Context& ctx) {
  Tensor to = x.c;
  g.c = to;
  run(g, ctx);
  return to;
}

/// Returns a set without other instructions for bf16 than fused multiply-adds.
Simd by_multiply_adds() {
  for (const Simd simd : {Simd::avx512, Simd::avx2}) {
    if (is_supported(simd)) return simd;
  }
  return Simd::neon;
}

/// Returns the blocks of the product on `ctx`, whose bits must be those of fused multiply-adds.
GuardCount blocks_of(const Case& x, const Gemm& g, const Context& ctx) {
  const Tensor expected = result(x, g, {.simd = by_multiply_adds()});
  const GuardCount before = guard_count();
  EXPECT_TRUE(result(x, g, ctx) == expected) << describe(ctx) << ", seed " << kSeed;
  return guard_count() - before;
}

TEST(GemmGuard, LetsTheUnitMultiplyOrdinaryFactors) {
  for (const Context& ctx : guarded_contexts()) {
    SCOPED_TRACE(describe(ctx));
    const Case x({70, 45, 1000}, kBf16ToF32);
    Gemm g = tile_order(x);
    for (const bool accumulate : {false, true}) {
      g.accumulate = g.continue_blocks = accumulate;
      const GuardCount blocks = blocks_of(x, g, ctx);
      EXPECT_GT(blocks.fast, 0);
      EXPECT_EQ(blocks.slow, 0);
      Context threads = ctx;
      threads.threads = 5;
      EXPECT_EQ(blocks_of(x, g, threads).fast, blocks.fast);
    }
  }
}

TEST(GemmGuard, EndsAtTheSmallestExponentsWhoseSumsCannotBeSubnormal) {
  for (const Context& ctx : guarded_contexts()) {
    for (const auto& [of_a, of_b] :
         {std::pair{-56, -56}, {-126, 14}, {-56, -57}, {-126, 13}, {-127, 80}, {80, -127}}) {
      for (const std::int64_t rows : {16, 40, 70}) {
        SCOPED_TRACE(::testing::Message() << describe(ctx) << ", exponents " << of_a << " and " << of_b);
        Case x({rows, 33, 100}, kBf16ToF32, 2);
        fill_binade(x.a, of_a, 0, x.a.columns);
        fill_binade(x.b, of_b, 0, x.b.columns);
        const GuardCount blocks = blocks_of(x, tile_order(x), ctx);
        const bool safe = std::min(of_a, of_b) >= -126 && of_a + of_b >= -112;
        EXPECT_EQ(safe ? blocks.slow : blocks.fast, 0) << rows;
        EXPECT_GT(blocks.all(), 0);
      }
    }
  }
}

/// Tiles load C, and take a subnormal number there as zero too.
TEST(GemmGuard, LooksAtTheSumsToWhichTilesAdd) {
  for (const Context& ctx : guarded_contexts()) {
    const bool loads_sums = ctx.simd != Simd::avx512_bf16;
    for (const int exponent : {-102, -103, -104, -130}) {
      SCOPED_TRACE(::testing::Message() << describe(ctx) << ", sums from 2^" << exponent);
      Case x({40, 45, 64}, kBf16ToF32);
      fill_binade(x.a, -56, 0, x.a.columns);
      fill_binade(x.b, -56, 0, x.b.columns);
      fill_binade(x.c, exponent, 0, x.c.columns);
      Gemm g = tile_order(x);
      g.accumulate = g.continue_blocks = true;
      const GuardCount blocks = blocks_of(x, g, ctx);
      EXPECT_EQ(loads_sums && exponent < -103 ? blocks.fast : blocks.slow, 0);
      EXPECT_GT(blocks.all(), 0);
    }
  }
}

/// The first block leaves subnormal sums, to which the second one, whose factors are larger, adds.
TEST(GemmGuard, LooksAtTheSumsOfEarlierBlocks) {
  constexpr std::int64_t kHalf = 416;
  for (const Context& ctx : guarded_contexts()) {
    SCOPED_TRACE(describe(ctx));
    Case x({70, 33, 2 * kHalf}, kBf16ToF32, 2);
    for (Tensor* t : {&x.a, &x.b}) {
      fill_binade(*t, -66, 0, kHalf);
      fill_binade(*t, -56, kHalf, 2 * kHalf);
    }
    const GuardCount blocks = blocks_of(x, tile_order(x), ctx);
    EXPECT_GT(blocks.slow, 0);
    if (ctx.simd != Simd::avx512_bf16) {
      EXPECT_EQ(blocks.fast, 0);
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::gemm_guard_test
