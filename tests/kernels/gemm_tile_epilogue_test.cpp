// What follows sums in tile order has the header's bits too, in the formats that have kernels of their own
// and in others.
#include <fmt/format.h>

#include <cmath>
#include <tuple>
#include <utility>

#include "kernels/gemm_case.h"

namespace mantissa::kernels::gemm_tile_epilogue_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests
using enum Scalar;

void expect_stated_bits(Case& x) {
  x.g.accumulator.order = SumOrder::tile;
  const Tensor expected = as_stated(x, f32);
  for (const Context& ctx : product_contexts()) EXPECT_TRUE(x.result(ctx) == expected) << describe(ctx);
}

using EpilogueCase = std::tuple<Scalar, Scalar, Scalar>;  // C, rounded, addend; f64: none
class GemmTileOrderEpilogue : public ::testing::TestWithParam<EpilogueCase> {};

TEST_P(GemmTileOrderEpilogue, HasTheStatedBits) {
  const auto& [c, rounded, addend] = GetParam();
  for (const bool biased : {false, true}) {
    if (mantissa::testing::kSanitized && biased && addend != f64) continue;
    Case x({70, 67, 96}, {bf16, bf16, bf16, c}, 2);
    x.g.rounded = rounded;
    if (addend != f64) {
      std::mt19937 random(kSeed);
      x.addend = Tensor(addend, 70, 67, 1);
      x.addend.fill_normal(random);
      x.add_addend();
    }
    if (biased) x.add_bias();
    expect_stated_bits(x);
  }
}

std::string epilogue_name(const ::testing::TestParamInfo<EpilogueCase>& info) {
  const auto& [c, rounded, addend] = info.param;
  return fmt::format("{}_rounded_{}_addend_{}", name(c), name(rounded),
                     addend == f64 ? "none" : name(addend));
}

INSTANTIATE_TEST_SUITE_P(Every, GemmTileOrderEpilogue,
                         ::testing::Combine(::testing::Values(f32, bf16, f16),
                                            ::testing::Values(f32, bf16, f16),
                                            ::testing::Values(f64, f32, bf16, f16)),
                         epilogue_name);

void scale(Tensor& t, int exponent) {
  for (std::int64_t i = 0; i < t.rows; ++i) {
    for (std::int64_t j = 0; j < t.columns; ++j) t.set(i, j, std::ldexp(t.get(i, j), exponent));
  }
}

/// Scales of A and B: sums among the smallest normal and the subnormal numbers, and sums that overflow.
TEST(GemmTileOrderOfExtremeSums, RoundsThemToBfloat16) {
  for (const auto& [of_a, of_b] : {std::pair{-70, -55}, {-66, -60}, {-80, -60}, {70, 56}, {64, 62}}) {
    Case x({64, 64, 64}, {bf16, bf16, bf16, bf16}, 2);
    x.g.rounded = bf16;
    scale(x.a, of_a);
    scale(x.b, of_b);
    SCOPED_TRACE(fmt::format("2^{} and 2^{}", of_a, of_b));
    expect_stated_bits(x);
  }
}

/// More packed columns than a chunk has, whole and partial panels.
TEST(GemmTileOrderOfManyColumns, HasTheStatedBits) {
  for (const int transposes : {0, 2, 3}) {
    if (mantissa::testing::kSanitized && transposes > 0) continue;
    Case x({33, 300, 2016}, {bf16, bf16, bf16, bf16}, transposes);
    x.g.rounded = bf16;
    expect_stated_bits(x);
  }
}

/// Few rows of A and a large B, whose tiles of C are computed transposed: every epilogue, whole and partial
/// tiles, with operands in several parts and in blocks of terms.
TEST(GemmTileOrderOfFewRows, HasTheStatedBits) {
  for (const auto& [m, n, k] : {std::tuple{20, 96, 64}, {33, 110, 100}, {40, 160, 520}}) {
    for (const auto& [c, rounded] : {std::pair{bf16, bf16}, {f32, f32}, {f32, bf16}, {f16, f16}}) {
      if (mantissa::testing::kSanitized && c == f16) continue;
      for (const bool more : {false, true}) {
        Case x({m, n, k}, {bf16, bf16, bf16, c}, 2);
        x.g.rounded = rounded;
        if (more) {
          x.add_bias();
          x.add_addend();
        }
        SCOPED_TRACE(fmt::format("{}x{}x{} {}", m, n, k, name(c)));
        expect_stated_bits(x);
      }
    }
    for (const int parts : {2, 3}) {
      for (const bool swap : {false, true}) {
        Case x({m, n, k}, {f32, f32, bf16, f32}, 2);
        x.g.a.operand = x.g.b.operand = Factor(bf16, parts);
        x.g.swap_parts = swap;
        SCOPED_TRACE(fmt::format("{}x{}x{} {} parts", m, n, k, parts));
        expect_stated_bits(x);
      }
    }
  }
}

/// Whole panels of operands whose sides are contiguous, as they are and rounded, more than are packed at
/// once.
TEST(GemmTileOrderOfContiguousSides, HasTheStatedBits) {
  for (const Scalar from : {bf16, f32, f16}) {
    for (const auto& [m, n] : {std::pair{64, 544}, {70, 560}}) {
      if (mantissa::testing::kSanitized && from == f16) continue;
      Case x({m, n, 96}, {from, from, bf16, f32}, 1);
      SCOPED_TRACE(fmt::format("{} {}x{}", name(from), m, n));
      expect_stated_bits(x);
    }
  }
}

/// Leaves that are packed in turn.
TEST(GemmTileOrderOfManyLeaves, HasTheStatedBits) {
  const std::vector<std::int64_t> lengths = {64, 64, 64, 64, 64, 256, 320, 40, 400};
  for (const std::int64_t rows_per_leaf : {1, 3}) {
    for (const Scalar c : {f32, bf16}) {
      if (mantissa::testing::kSanitized && rows_per_leaf > 1 && c == bf16) continue;
      Case x({65, 70, testing::Batch(lengths).tokens}, {bf16, bf16, bf16, c}, 1);
      x.cut(lengths, rows_per_leaf);
      expect_stated_bits(x);
      if (c != f32) continue;
      x.g.accumulate = true;
      expect_stated_bits(x);
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::gemm_tile_epilogue_test
