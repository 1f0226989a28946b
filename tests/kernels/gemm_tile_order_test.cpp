// Products in tile order have the header's bits on every path, instruction set and thread count.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/gemm_case.h"
#include "mantissa/core/base/error.h"

namespace mantissa::kernels::gemm_tile_order_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

constexpr Formats kBf16ToF32 = {Scalar::bf16, Scalar::bf16, Scalar::bf16, Scalar::f32};
constexpr Formats kRoundedToBf16 = {Scalar::f32, Scalar::f32, Scalar::bf16, Scalar::f32};
constexpr Formats kE4m3 = {Scalar::e4m3, Scalar::e5m2, Scalar::bf16, Scalar::f32};

void expect_stated_bits(Case& x) {
  x.g.accumulator.order = SumOrder::tile;
  const Tensor expected = as_stated(x, Scalar::f32);
  for (const Context& ctx : product_contexts()) {
    EXPECT_TRUE(x.result(ctx) == expected)
        << describe(ctx) << ", accumulate " << x.g.accumulate << ", seed " << kSeed;
  }
}

using ShapeCase = std::tuple<Size, int, Formats>;
class GemmTileOrder : public ::testing::TestWithParam<ShapeCase> {};

TEST_P(GemmTileOrder, HasTheStatedBitsOnEveryInstructionSetAndThreadCount) {
  const auto& [size, transposes, formats] = GetParam();
  Case x(size, formats, transposes);
  expect_stated_bits(x);
  x.g.accumulate = true;
  expect_stated_bits(x);
}

std::string shape_name(const ::testing::TestParamInfo<ShapeCase>& info) {
  const auto& [s, transposes, formats] = info.param;
  return fmt::format("{}x{}x{}_{}{}_{}", s.m, s.n, s.k, a_transposed(transposes) ? "t" : "n",
                     b_transposed(transposes) ? "t" : "n", name(formats.a));
}

INSTANTIATE_TEST_SUITE_P(
    Every, GemmTileOrder,
    ::testing::Combine(::testing::Values(Size{1, 1, 1}, Size{1, 17, 256}, Size{2, 40, 31}, Size{3, 33, 33},
                                         Size{5, 64, 300}, Size{9, 50, 700}, Size{17, 48, 65},
                                         Size{15, 33, 513}, Size{70, 131, 255}, Size{100, 1, 64},
                                         Size{97, 67, 331}),
                       ::testing::Range(0, 4), ::testing::Values(kBf16ToF32, kRoundedToBf16, kE4m3)),
    shape_name);

/// Panels of units with 32 rows and long blocks, in scratch memory that is counted for f32 panels of 42 rows.
TEST(GemmTileOrderOfLongBlocks, FitsTheScratchOfF32Panels) {
  Case x({161, 33, 1000}, kBf16ToF32);
  expect_stated_bits(x);
}

/// Fresh sums of more than 4 MB, in whole cache lines, are written past the caches: those of one leaf and of
/// several, and of a part of a panel's rows.
TEST(GemmTileOrderOfLargeSums, IsTheStatedOne) {
  if (mantissa::testing::kSanitized) GTEST_SKIP() << "takes long";
  for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{9, 8}, {17}}) {
    Case x({1030, 1056, 17}, kBf16ToF32, 1);
    x.cut(lengths, 1);
    x.g.accumulator.order = SumOrder::tile;
    const Tensor expected = as_stated(x, Scalar::f32);
    for (const Context& ctx : product_contexts()) {
      const std::size_t row = static_cast<std::size_t>(x.g.n) * sizeof(float);
      const Storage sums(static_cast<std::size_t>(x.g.m) * row);  // begins with a cache line
      Gemm g = x.g;
      g.c = {sums.data(), Scalar::f32, x.g.n};
      run(g, ctx);
      for (std::size_t i = 0; i < static_cast<std::size_t>(x.g.m); ++i) {
        const std::byte* stated =
            expected.bytes.data() + expected.at(static_cast<std::int64_t>(i), 0) * sizeof(float);
        ASSERT_EQ(std::memcmp(sums.data() + i * row, stated, row), 0) << describe(ctx) << ", row " << i;
      }
    }
  }
}

TEST(GemmTileOrderOfLeaves, IsTheStatedOne) {
  for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{256, 256},
                                                   {300},
                                                   {40, 7, 1, 90},
                                                   {600, 513, 256, 20},
                                                   {0, 33, 0, 290, 0}}) {
    for (const std::int64_t rows_per_leaf : {1, 2}) {
      Case x({37, 45, testing::Batch(lengths).tokens}, kBf16ToF32, 1);
      x.cut(lengths, rows_per_leaf);
      for (const bool accumulate : {false, true}) {
        x.g.accumulate = accumulate;
        expect_stated_bits(x);
      }
    }
  }
}

TEST(GemmTileOrderOfManyShortRows, HasTheStatedBits) {
  for (const Size& size : mantissa::testing::cases<Size>(sizes_of_short_rows(), 1)) {
    for (const std::int64_t rows_per_leaf : {1, 3}) {
      Case x(size, kBf16ToF32, 1);
      x.cut(many_short_rows(), rows_per_leaf);
      for (const bool accumulate : {false, true}) {
        x.g.accumulate = accumulate;
        expect_stated_bits(x);
      }
      Case rounded(size, {Scalar::bf16, Scalar::bf16, Scalar::bf16, Scalar::bf16}, 1);
      rounded.cut(many_short_rows(), rows_per_leaf);
      expect_stated_bits(rounded);
    }
  }
}

TEST(GemmTileOrderUnderScales, MultipliesTheSumsOfLeaves) {
  for (const Size& size : {Size{2, 40, 300}, Size{70, 131, 255}, Size{131, 40, 700}}) {
    Case x(size, kE4m3, 2);
    x.g.a.unscale = 0.0123F;
    x.g.b.unscale = 3.7e-5F;
    for (const bool accumulate : {false, true}) {
      x.g.accumulate = accumulate;
      expect_stated_bits(x);
    }
  }
  const std::vector<std::int64_t> lengths = {300, 20, 380};
  Case x({37, 45, 700}, kE4m3, 1);
  x.cut(lengths, 1);
  x.g.a.unscale = 0.0123F;
  x.g.accumulate = true;
  expect_stated_bits(x);
  x.g.b.unscale = 0.0321F;
  x.g.swap_parts = true;
  expect_stated_bits(x);
}

TEST(GemmTileOrderUnderAnAccumulator, RoundsAfterItsTerms) {
  for (const std::int64_t block : {0, 32, 96, 512}) {
    Case x({37, 45, 700}, kBf16ToF32);
    x.g.accumulator = {Scalar::f16, block};
    expect_stated_bits(x);
  }
}

TEST(GemmTileOrderOfBlocks, ContinuesAnEarlierCall) {
  Case whole({19, 23, 700}, kBf16ToF32);
  whole.g.accumulator.order = SumOrder::tile;
  Tensor in_turn = whole.c;
  for (std::int64_t k = 0; k < whole.g.k; k += 512) {
    Gemm part = whole.g;
    part.k = std::min<std::int64_t>(512, whole.g.k - k);
    part.a.matrix.data = static_cast<const std::uint16_t*>(whole.g.a.matrix.data) + k;
    part.b.matrix.data = static_cast<const std::uint16_t*>(whole.g.b.matrix.data) + k * whole.b.ld;
    part.c = in_turn;
    part.accumulate = part.continue_blocks = k > 0;
    run(part);
  }
  EXPECT_TRUE(in_turn == whole.result());
}

/// Panels have 32 sides. If their second half is empty, A's is skipped.
TEST(GemmTileOrderByTiles, MultipliesEachPairOfTilesOncePerBlock) {
  if (testing::tile_hardware() != testing::TileHardware::emulator)
    GTEST_SKIP() << "only the emulator counts products of tiles";
  constexpr std::int64_t kBlocks = 3;
  for (const auto& [size, tiles_of_c] : {std::pair{Size{64, 96, 65}, 4 * 6}, {Size{70, 33, 96}, 5 * 4}}) {
    Case x(size, kBf16ToF32);
    x.g.accumulator.order = SumOrder::tile;
    for (const int threads : {1, 3}) {
      const std::int64_t before = testing::emulated_products();
      x.result({.simd = Simd::amx, .threads = threads});
      EXPECT_EQ(testing::emulated_products() - before, tiles_of_c * kBlocks) << threads << " threads";
    }
  }
}

/// Units that flush subnormal numbers to zero must not be used where one can occur.
TEST(GemmTileOrderOfTinyFactors, KeepsSubnormalNumbers) {
  for (const auto& [of_a, of_b] : {std::pair{-56, -56},
                                   {-56, -57},
                                   {-100, -30},
                                   {-126, 10},
                                   {-133, 5},
                                   {-10, -133},
                                   {-126, -126},
                                   {100, -130}}) {
    for (const int transposes : {0, 1, 2, 3}) {
      Case x({80, 90, 100}, kBf16ToF32, transposes);
      std::mt19937 random(kSeed);
      for (const auto& [tensor, exponent] : {std::pair{&x.a, of_a}, {&x.b, of_b}}) {
        // Numbers that lie far apart, some of them at the exponent, some zero.
        for (std::int64_t i = 0; i < tensor->rows; ++i) {
          for (std::int64_t j = 0; j < tensor->columns; ++j) {
            const auto draw = static_cast<int>(random() % 4);
            const double fraction = 1 + std::ldexp(static_cast<double>(random() % 128), -7);
            const double x = draw == 3 ? 0 : std::ldexp(fraction, exponent + 2 * draw);
            tensor->set(i, j, std::copysign(x, tensor->get(i, j)));
          }
        }
      }
      SCOPED_TRACE(::testing::Message() << "exponents from " << of_a << " and " << of_b);
      expect_stated_bits(x);
      x.g.accumulate = true;
      expect_stated_bits(x);
    }
  }
}

TEST(GemmTileOrderErrors, NameWhatItIsNotFor) {
  const auto refused = [](const Formats& formats, Accumulator accumulator) {
    Case x({3, 3, 3}, formats);
    x.g.accumulator = accumulator;
    EXPECT_THROW(x.result(), DtypeError);
  };
  refused(kF64, {Scalar::f32, 0, SumOrder::tile});
  refused(kBf16ToF32, {Scalar::f16, 40, SumOrder::tile});
}

}  // namespace
}  // namespace mantissa::kernels::gemm_tile_order_test
