// Products of few rows by tiles, which read the matrix in place, have the bits of the header and of fused
// multiply-adds, and fall back to these only where a subnormal number could occur.
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "kernels/gemm_case.h"
#include "mantissa/kernels/cpu/gemm/check.h"
#include "mantissa/kernels/guard_count.h"
#include "mantissa/kernels/units.h"

namespace mantissa::kernels::gemm_few_rows_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

constexpr int kWeightsByRows = 2;  // B is transposed: its columns are contiguous along k
constexpr Formats kBf16ToF32 = {Scalar::bf16, Scalar::bf16, Scalar::bf16, Scalar::f32};

/// The blocks that a product counts: 32 columns × 32 rows × an even share of k of at most 480 terms.
std::uint64_t blocks_in(const Size& s) {
  const auto count = [](std::int64_t n, std::int64_t unit) {
    return static_cast<std::uint64_t>((n + unit - 1) / unit);
  };
  return count(s.m, 32) * count(s.n, 32) * count(s.k, 480);
}

/// Checks the bits on every set with one to three threads, and returns what the guard counted with one.
GuardCount expect_stated_bits(Case& x) {
  x.g.accumulator.order = SumOrder::tile;
  const Tensor expected = as_stated(x, Scalar::f32);
  for (const Simd simd : kSimds) {
    if (is_supported(simd) && !testing::has_tiles(simd)) {
      EXPECT_TRUE(x.result({.simd = simd, .threads = 2}) == expected) << name(simd) << ", seed " << kSeed;
    }
  }
  GuardCount counted;
  for (const Simd simd : testing::tile_simds()) {
    for (const int threads : {3, 2, 1}) {
      const Context ctx{.simd = simd, .threads = threads};
      const GuardCount before = guard_count();
      EXPECT_TRUE(x.result(ctx) == expected) << describe(ctx) << ", seed " << kSeed;
      counted = guard_count() - before;
    }
  }
  return counted;
}

void expect_tiles_alone(const GuardCount& counted, const Size& size) {
  EXPECT_EQ(counted.fast, blocks_in(size));
  EXPECT_EQ(counted.slow, 0);
}

TEST(GemmOfFewRows, IsComputedByTilesFromEightToSixtyFourRows) {
  for (const Simd simd : testing::tile_simds()) {
    for (std::int64_t m = 1; m <= 70; ++m) {
      Case x({m, 33, 96}, kBf16ToF32, kWeightsByRows);
      x.g.accumulator.order = SumOrder::tile;
      const ProductKernel kernel = kernel_of(x.g);
      EXPECT_EQ(kernel, m < kStripRows   ? ProductKernel::thin
                        : m <= kThinRows ? ProductKernel::strips
                                         : ProductKernel::packed);
      const bool by_tiles = unit_of({.simd = simd}, x.g) != UnitId::fma;
      EXPECT_EQ(by_tiles, kernel != ProductKernel::thin) << m;
      const GuardCount before = guard_count();
      x.result({.simd = simd});
      EXPECT_EQ((guard_count() - before).fast, by_tiles ? blocks_in({m, 33, 96}) : 0) << m;
    }
  }
}

TEST(GemmOfFewRows, HasTheStatedBits) {
  for (const std::int64_t m : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 49, 63, 64, 65, 70}) {
    for (const auto& [n, k] : {std::pair{1, 97}, {31, 31}, {32, 480}, {33, 64}, {64, 481}, {131, 515}}) {
      SCOPED_TRACE(fmt::format("{} × {} × {}", m, n, k));
      Case x({m, n, k}, kBf16ToF32, kWeightsByRows);
      const GuardCount counted = expect_stated_bits(x);
      if (m >= kStripRows) expect_tiles_alone(counted, {m, n, k});
    }
  }
}

/// So few terms that packed rows would exceed the workspace.
TEST(GemmOfFewRows, HasTheStatedBitsOverFewTerms) {
  for (const std::int64_t m : {8, 33, 64}) {
    for (std::int64_t k = 1; k <= 20; ++k) {
      SCOPED_TRACE(fmt::format("{} rows, {} terms", m, k));
      Case x({m, 40, k}, kBf16ToF32, kWeightsByRows);
      expect_stated_bits(x);
    }
  }
}

/// Rows without gaps whose tiles are aligned to lines, and those 4096 bytes apart.
TEST(GemmOfFewRows, HasTheStatedBitsOfAMatrixWithoutGaps) {
  for (const std::int64_t k : {512, 2048}) {
    const Size size{20, 64, k};
    Case x(size, kBf16ToF32, kWeightsByRows);
    x.b = Tensor(Scalar::bf16, size.n, size.k);
    std::mt19937 random(kSeed);
    x.b.fill_normal(random);
    x.g.b.matrix = x.b;
    expect_tiles_alone(expect_stated_bits(x), size);
  }
}

TEST(GemmOfFewRows, ConvertsOtherFormats) {
  for (const Formats& formats : {Formats{Scalar::f32, Scalar::f32, Scalar::bf16, Scalar::bf16},
                                 {Scalar::f32, Scalar::bf16, Scalar::bf16, Scalar::f32},
                                 {Scalar::bf16, Scalar::f32, Scalar::bf16, Scalar::f32},
                                 {Scalar::e4m3, Scalar::e5m2, Scalar::bf16, Scalar::f32},
                                 {Scalar::bf16, Scalar::e4m3, Scalar::bf16, Scalar::f32},
                                 {Scalar::bf16, Scalar::bf16, Scalar::e4m3, Scalar::f32}}) {
    for (const Size& size : {Size{9, 64, 96}, Size{37, 45, 700}}) {
      SCOPED_TRACE(fmt::format("{} × {} as {}", name(formats.a), name(formats.b), name(formats.operand)));
      Case x(size, formats, kWeightsByRows);
      expect_tiles_alone(expect_stated_bits(x), size);
    }
  }
}

TEST(GemmOfFewRows, AppliesScalesAndTheEpilogue) {
  for (const bool swap : {false, true}) {
    const Size size{21, 70, 600};
    Case x(size, {Scalar::bf16, Scalar::bf16, Scalar::bf16, Scalar::bf16}, kWeightsByRows);
    x.g.a.unscale = 0.0123F;
    x.g.b.unscale = 0.0321F;
    x.g.swap_parts = swap;
    x.g.rounded = Scalar::bf16;
    x.add_bias();
    x.add_addend();
    expect_tiles_alone(expect_stated_bits(x), size);
  }
}

TEST(GemmOfFewRows, PropagatesInfinityAndNan) {
  const Size size{18, 64, 96};
  Case x(size, kBf16ToF32, kWeightsByRows);
  x.a.set(3, 5, INFINITY);
  x.b.set(40, 50, INFINITY);
  x.b.set(7, 5, 0);  // 0 · ∞
  for (const Simd simd : testing::tile_simds()) {
    x.g.accumulator.order = SumOrder::tile;
    const Tensor got = x.result({.simd = simd}), want = x.result({.simd = Simd::avx2});
    for (std::int64_t i = 0; i < size.m; ++i) {
      for (std::int64_t j = 0; j < size.n; ++j) {
        const double left = got.get(i, j), right = want.get(i, j);
        EXPECT_TRUE(left == right || (std::isnan(left) && std::isnan(right))) << i << ", " << j;
        EXPECT_EQ(std::isfinite(left), i != 3 && j != 40) << i << ", " << j;
      }
    }
    EXPECT_TRUE(std::isnan(got.get(3, 7)));
  }
}

// ---- The guard

TEST(GemmGuardOfFewRows, SparesTheColumnsAndTermsWithoutSmallWeights) {
  const Size size{40, 96, 960};
  for (const double small : {0x1p-133, 0x1p-126 * 0.5, 0x1p-126, -0x1p-120}) {
    for (const std::int64_t term : {10, 479, 480, 959}) {
      SCOPED_TRACE(fmt::format("weight {} at term {}", small, term));
      Case x(size, kBf16ToF32, kWeightsByRows);
      x.b.set(33, term, small);
      const GuardCount counted = expect_stated_bits(x);
      EXPECT_EQ(counted.slow, 2);  // one group of columns, half of the terms, two strips
      EXPECT_EQ(counted.all(), blocks_in(size));
    }
  }
}

TEST(GemmGuardOfFewRows, SparesTheStripsAndTermsWithoutSmallActivations) {
  const Size size{40, 96, 960};
  for (const double small : {0x1p-133, 0x1p-126}) {
    for (const std::int64_t term : {10, 959}) {
      SCOPED_TRACE(fmt::format("activation {} at term {}", small, term));
      Case x(size, kBf16ToF32, kWeightsByRows);
      x.a.set(35, term, small);
      const GuardCount counted = expect_stated_bits(x);
      EXPECT_EQ(counted.slow, 3);  // one strip, half of the terms, three groups of columns
      EXPECT_EQ(counted.all(), blocks_in(size));
    }
  }
}

/// Sums from before that are not multiples of 2^−126 spoil those of factors that alone would be safe.
TEST(GemmGuardOfFewRows, LooksAtTheSumsOfEarlierSegments) {
  const Size size{40, 64, 1440};
  Case x(size, kBf16ToF32, kWeightsByRows);
  std::mt19937 random(kSeed);
  for (Tensor* t : {&x.a, &x.b}) {
    for (std::int64_t i = 0; i < t->rows; ++i) {
      for (std::int64_t k = 0; k < t->columns; ++k) {
        const int exponent = k < 480 ? -66 : k < 960 ? -56 : 0;
        const double magnitude =
            std::ldexp(1 + std::ldexp(static_cast<double>(random() % 128), -7), exponent);
        t->set(i, k, random() % 2 == 0 ? magnitude : -magnitude);
      }
    }
  }
  const GuardCount counted = expect_stated_bits(x);
  // The first segment's factors are too small, and then its sums. The third segment adds to the sums of the
  // second one, of which a few may still be small.
  EXPECT_GE(counted.slow, blocks_in(size) / 3 * 2);
  EXPECT_EQ(counted.all(), blocks_in(size));
}

}  // namespace
}  // namespace mantissa::kernels::gemm_few_rows_test
