// Matrices in packed blocks: they hold the values of round_to_blocks, and products of them have the bits of
// products of those values in bf16.
#include <fmt/format.h>

#include <cmath>

#include "kernels/gemm_case.h"
#include "kernels/packed_matrix.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/block_codes.h"
#include "mantissa/kernels/scaled.h"

namespace mantissa::kernels::pack_blocks_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

Tensor expanded(const Tensor& from, const Blocks& blocks, float tensor_scale) {
  Tensor to(Scalar::bf16, from.rows, from.columns);
  round_to_blocks(best(), from.rows, from.columns, from, to, blocks.format, tensor_scale, blocks.along_rows);
  return to;
}

using BlocksCase = std::tuple<BlockFormat, bool>;
class PackedBlocks : public ::testing::TestWithParam<BlocksCase> {
 protected:
  static Blocks blocks() { return {std::get<0>(GetParam()), std::get<1>(GetParam())}; }
};

TEST_P(PackedBlocks, HoldTheValuesOfQuantizeBlocks) {
  std::mt19937 random(kSeed);
  for (const auto& [rows, width] :
       {std::pair{1, 1}, {1, 64}, {64, 1}, {33, 31}, {31, 33}, {70, 130}, {5, 2051}, {129, 65}}) {
    for (const Scalar type : {Scalar::f32, Scalar::bf16}) {
      const Tensor from = Tensor(type, rows, width).fill_normal(random);
      for (const float tensor_scale : {1.0F, 0.0123F}) {
        const Tensor want = expanded(from, blocks(), tensor_scale);
        const std::vector<double> values = want.values();
        const Packed first(from, blocks(), tensor_scale, best());
        const std::vector<float> got = first.values();
        EXPECT_TRUE(std::equal(got.begin(), got.end(), values.begin(), values.end()))
            << rows << " × " << width << ", seed " << kSeed;
        for (const Context& ctx : contexts())
          EXPECT_EQ(Packed(from, blocks(), tensor_scale, ctx).bytes, first.bytes) << describe(ctx);
      }
    }
  }
}

TEST_P(PackedBlocks, MultiplyWithTheBitsOfTheirValues) {
  std::mt19937 random(kSeed);
  for (const Size& size : mantissa::testing::cases<Size>({{1, 17, 256},
                                                          {16, 70, 333},
                                                          {97, 67, 131},
                                                          {2, 35, 600},
                                                          {3, 40, 70},
                                                          {7, 31, 97},
                                                          {64, 49, 1019},
                                                          {29, 131, 600},
                                                          {300, 9, 270}},
                                                         3)) {
    for (const int transposes : {0, 1, 2, 3}) {
      const bool ta = a_transposed(transposes), tb = b_transposed(transposes);
      const Tensor a = Tensor(Scalar::f32, ta ? size.k : size.m, ta ? size.m : size.k).fill_normal(random);
      const Tensor b = Tensor(Scalar::f32, tb ? size.n : size.k, tb ? size.k : size.n).fill_normal(random);
      const Tensor wide_a = expanded(a, blocks(), 1), wide_b = expanded(b, blocks(), 1);
      const Packed packed_a(a, blocks(), 1, best()), packed_b(b, blocks(), 1, best());
      for (const float unscale : {1.0F, 0.0123F}) {
        Gemm g;
        g.m = size.m;
        g.n = size.n;
        g.k = size.k;
        const auto result = [&](const GemmOperand& left, const GemmOperand& right, const Context& ctx) {
          Tensor c(Scalar::f32, size.m, size.n, 2);
          Gemm with = g;
          with.a = left;
          with.b = right;
          with.c = c;
          run(with, ctx);
          return c;
        };
        const GemmOperand plain_a{wide_a, Scalar::bf16, ta, unscale},
            plain_b{wide_b, Scalar::bf16, tb, unscale};
        const GemmOperand coded_a = packed_a.operand(ta, unscale), coded_b = packed_b.operand(tb, unscale);
        for (const std::int64_t cut : {0, 37}) {
          if (cut > 0) g.accumulator = {Scalar::f16, cut};
          const Tensor want = result(plain_a, plain_b, best());
          const std::string what = fmt::format("{} × {} × {}, transposes {}, cut {}, seed {}", size.m, size.n,
                                               size.k, transposes, cut, kSeed);
          EXPECT_TRUE(result(coded_a, plain_b, best()) == want) << "A, " << what;
          EXPECT_TRUE(result(plain_a, coded_b, best()) == want) << "B, " << what;
          for (const Context& ctx : contexts())
            EXPECT_TRUE(result(coded_a, coded_b, ctx) == want) << describe(ctx) << ", " << what;
        }
      }
    }
  }
}

/// Of blocks of zeros and of every magnitude: bf16 rounds elements of the smallest blocks.
TEST_P(PackedBlocks, MultiplyInTileOrderWithTheBitsOfTheirValues) {
  std::mt19937 random(kSeed);
  for (const Size& size :
       mantissa::testing::cases<Size>({{3, 40, 70}, {16, 70, 333}, {97, 67, 131}, {37, 49, 1019}}, 2)) {
    for (const int exponent : {0, -109, -118, -127, -140}) {
      for (const bool transposed : {true, false}) {
        Tensor b(Scalar::f32, transposed ? size.n : size.k, transposed ? size.k : size.n);
        for (std::int64_t i = 0; i < b.rows; ++i) {
          for (std::int64_t j = 0; j < b.columns; ++j) {
            const bool zero = i / 32 % 3 == 1 || j / 32 % 3 == 2;
            b.set(i, j, zero ? 0.0 : std::ldexp(std::normal_distribution<double>()(random), exponent));
          }
        }
        const Tensor wide = expanded(b, blocks(), 1);
        const Packed packed(b, blocks(), 1, best());
        Case x(size, kBf16, transposed ? 2 : 0);
        for (std::int64_t i = 0; i < x.a.rows; ++i)
          for (std::int64_t j = 0; j < x.a.columns; ++j) x.a.set(i, j, std::ldexp(x.a.get(i, j), 40));
        x.g.accumulator.order = SumOrder::tile;
        x.g.b = {wide, Scalar::bf16, transposed, 0.0123F};
        const Tensor want = x.result();
        x.g.b = packed.operand(transposed, 0.0123F);
        for (const Context& ctx : product_contexts()) {
          EXPECT_TRUE(x.result(ctx) == want)
              << describe(ctx) << ", " << size.m << " rows, 2^" << exponent << ", seed " << kSeed;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, PackedBlocks,
                         ::testing::Combine(::testing::ValuesIn(kBlockFormats), ::testing::Bool()),
                         [](const auto& info) {
                           std::string name(traits(std::get<0>(info.param)).name);
                           std::erase(name, '-');
                           return name + (std::get<1>(info.param) ? "_columns" : "_rows");
                         });

TEST(PackedFactors, MakeNonfiniteBlocksNan) {
  Tensor from(Scalar::f32, 3, 40);
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 40; ++j) from.set(i, j, i == 1 && j == 5 ? INFINITY : 1);
  }
  const Packed packed(from, {BlockFormat::mxfp4, false}, 1, best());
  const std::vector<float> values = packed.values();
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::isnan(values[i]), i / 40 == 1 && i % 40 < 32) << i;
}

TEST(PackedFactors, AreRoundedToANarrowerOperandFormat) {
  std::mt19937 random(kSeed);
  const Tensor b = Tensor(Scalar::f32, 20, 50).fill_normal(random);
  const Tensor a = Tensor(Scalar::f32, 9, 50).fill_normal(random);
  const Blocks blocks{BlockFormat::mxfp8, false};
  const Tensor wide = expanded(b, blocks, 1);
  const Packed packed(b, blocks, 1, best());
  Tensor want(Scalar::f32, 9, 20), got = want;
  Gemm g;
  g.m = 9;
  g.n = 20;
  g.k = 50;
  g.a = {a, Scalar::e5m2, false};
  g.b = {wide, Scalar::e5m2, true};
  g.c = want;
  run(g);
  g.b = packed.operand(true, 1);
  g.b.operand = Scalar::e5m2;
  g.c = got;
  run(g);
  EXPECT_TRUE(got == want);
}

TEST(PackedFactors, AreAnErrorInF64) {
  const Tensor a(Scalar::f64, 2, 32);
  const Tensor b = Tensor(Scalar::f32, 2, 32);
  const Packed packed(b, {BlockFormat::mxfp4, false}, 1, best());
  Tensor c(Scalar::f64, 2, 2);
  Gemm g;
  g.m = g.n = 2;
  g.k = 32;
  g.a = {a, Scalar::f64, false};
  g.b = packed.operand(true, 1);
  g.b.operand = Scalar::f64;
  g.c = c;
  EXPECT_THROW(gemm(best(), g), DtypeError);
}

}  // namespace
}  // namespace mantissa::kernels::pack_blocks_test
