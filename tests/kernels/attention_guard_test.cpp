// Attention multiplies by tiles wherever no sum can be subnormal, and by fused multiply-adds elsewhere.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/attention_case.h"
#include "kernels/tile_simds.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/kernels/guard_count.h"
#include "mantissa/kernels/units.h"

namespace mantissa::kernels::attention_test::attention_guard_test {
namespace {

constexpr Formats kFormats = {Scalar::f32, Scalar::f32,  Scalar::f32,   Scalar::f32,
                              Scalar::f32, Scalar::bf16, SumOrder::tile};

/// Returns a set that uses only fused multiply-adds.
Simd by_multiply_adds() {
  for (const Simd simd : {Simd::avx512, Simd::avx2}) {
    if (is_supported(simd)) return simd;
  }
  return Simd::neon;
}

struct Counts {
  GuardCount forward, backward;
};

/// Returns the products of both passes on `simd`, whose bits must be those of fused multiply-adds.
Counts products_of(Case& c, Simd simd) {
  const auto results = {&Case::out, &Case::lse, &Case::dq, &Case::dk, &Case::dv};
  Case expected(c.sizes, c.formats);
  c.forward({by_multiply_adds(), 1});
  c.backward({by_multiply_adds(), 1});
  for (const auto member : results) (expected.*member).copy_rows(0, c.*member, 0, (c.*member).rows);
  const GuardCount before = guard_count();
  c.forward({simd, 1});
  const GuardCount between = guard_count();
  c.backward({simd, 1});
  for (const auto member : results)
    EXPECT_TRUE(same_bits(expected.*member, c.*member)) << name(simd) << ", seed " << kSeed;
  return {between - before, guard_count() - between};
}

/// Fills elements with numbers from 2^exponent to 2^(exponent + 1), either sign.
void fill_binade(Tensor& t, int exponent) {
  std::mt19937 random(kSeed);
  for (std::size_t i = 0; i < t.count(); ++i) {
    const double x = std::ldexp(1 + std::ldexp(static_cast<double>(random() % 128), -7), exponent);
    t.set(i, random() % 2 == 0 ? x : -x);
  }
}

TEST(AttentionGuard, LetsTilesMultiplyOrdinaryFactors) {
  for (const Simd simd : kernels::testing::tile_simds()) {
    for (const Sizes& sizes : mantissa::testing::cases<Sizes>({{1, 1, 64, {kAttentionRows}},
                                                               {4, 2, 20, {300, 100}, 70},
                                                               {2, 1, 80, {1100}, 0, 2},
                                                               {1, 1, 48, {513}}},
                                                              2)) {
      SCOPED_TRACE(::testing::Message() << name(simd) << " " << sizes);
      Case c = Case::random(sizes, kFormats);
      std::mt19937 random(kSeed);
      for (Tensor* t : {&c.q, &c.k, &c.v, &c.dout}) t->fill_normal(random);  // the kernel rounds them
      const Counts counts = products_of(c, simd);
      EXPECT_GT(counts.forward.fast, 0);
      EXPECT_GT(counts.backward.fast, 0);
      EXPECT_EQ(counts.forward.slow + counts.backward.slow, 0);
    }
  }
}

TEST(AttentionGuard, CountsNothingWhereTilesAreNotUsed) {
  for (const Simd simd : kernels::testing::tile_simds()) {
    Case few = Case::random({1, 1, 64, {kAttentionRows - 1}}, kFormats);
    EXPECT_EQ(products_of(few, simd).forward.all(), 0);
    Case of_chains = Case::random({1, 1, 64, {100}}, all_of(Scalar::bf16));
    const Counts chains = products_of(of_chains, simd);
    EXPECT_EQ(chains.forward.all() + chains.backward.all(), 0);
  }
}

TEST(AttentionGuard, EndsAtTheSmallestExponentsWhoseSumsCannotBeSubnormal) {
  for (const Simd simd : kernels::testing::tile_simds()) {
    for (const auto& [of_q, of_k] : {std::pair{-56, -56}, {-126, 14}, {-56, -57}, {-126, 13}, {-127, 80}}) {
      SCOPED_TRACE(::testing::Message() << name(simd) << ", exponents " << of_q << " and " << of_k);
      Case c = Case::random({1, 1, 32, {100}}, kFormats);
      fill_binade(c.q, of_q);
      fill_binade(c.k, of_k);
      const GuardCount products = products_of(c, simd).forward;
      const bool safe = of_q >= -126 && of_q + of_k >= -112;
      EXPECT_EQ(products.slow > 0, !safe);
      EXPECT_GT(products.fast, 0);  // P·V
    }
  }
}

/// The first keys have so small a P that their sums of dQ are subnormal. Later keys continue these sums: they
/// add nothing to the first components, but as large numbers they would pass the guard alone.
TEST(AttentionGuard, LooksAtTheSumsOfDqThatLaterKeysContinue) {
  constexpr std::int64_t kDim = 16, kLength = 260, kFirst = 128;
  for (const Simd simd : kernels::testing::tile_simds()) {
    Case c = Case::random({1, 1, kDim, {kLength}}, kFormats);
    for (std::int64_t t = 0; t < kLength; ++t) {
      const auto row = static_cast<std::size_t>(t * kDim);
      c.q.set(row + kDim - 1, 16);
      c.k.set(row + kDim - 1, t < kFirst ? -16 : 0);  // scores of −64 and 0
      for (std::size_t i = 0; i + 1 < kDim; ++i) {
        const double sign = c.k.get(row + i) < 0 ? -1 : 1;
        c.k.set(row + i, t < kFirst ? sign * 0x1p-40 : 0);
      }
    }
    const GuardCount products = products_of(c, simd).backward;
    EXPECT_GT(products.fast, 0);
    EXPECT_GT(products.slow, 0);
  }
}

}  // namespace
}  // namespace mantissa::kernels::attention_test::attention_guard_test
