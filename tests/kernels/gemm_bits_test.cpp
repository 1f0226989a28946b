// The matrix product's order of summation equals the header's bit for bit, for every instruction set, thread
// count and number of rows, and with leaves, blocks and epilogue in one call or in several.
#include <fmt/format.h>

#include "kernels/gemm_case.h"

namespace mantissa::kernels::gemm_bits_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

void expect_stated_bits(const Case& x, Scalar arithmetic) {
  const Tensor expected = as_stated(x, arithmetic);
  for (const Context& ctx : contexts()) {
    EXPECT_TRUE(x.result(ctx) == expected)
        << describe(ctx) << ", accumulate " << x.g.accumulate << ", seed " << kSeed;
  }
}

// ---- Shapes

using ShapeCase = std::tuple<Size, int, Formats>;
class GemmShapes : public ::testing::TestWithParam<ShapeCase> {};

TEST_P(GemmShapes, HaveTheStatedBitsOnEveryInstructionSetAndThreadCount) {
  const auto& [size, transposes, formats] = GetParam();
  expect_stated_bits(Case(size, formats, transposes), formats.operand);
}

std::string shape_name(const ::testing::TestParamInfo<ShapeCase>& info) {
  const auto& [s, transposes, formats] = info.param;
  return fmt::format("{}x{}x{}_{}{}_{}", s.m, s.n, s.k, a_transposed(transposes) ? "t" : "n",
                     b_transposed(transposes) ? "t" : "n", name(formats.operand));
}

INSTANTIATE_TEST_SUITE_P(
    Every, GemmShapes,
    ::testing::Combine(::testing::Values(Size{1, 1, 1}, Size{1, 17, 256}, Size{2, 300, 5}, Size{6, 16, 257},
                                         Size{7, 31, 97}, Size{14, 32, 512}, Size{15, 33, 513},
                                         Size{29, 131, 255}, Size{64, 49, 1019}, Size{100, 1, 64},
                                         Size{97, 67, 131}),
                       ::testing::Range(0, 4), ::testing::Values(kF32, kF64)),
    shape_name);

TEST(GemmOfManyRows, HasTheStatedBitsOverSeveralChunks) {
  for (const Formats& formats : {kF32, kBf16}) expect_stated_bits(Case({1100, 3, 270}, formats), Scalar::f32);
  expect_stated_bits(Case({400, 2, 8200}, kF32, 3), Scalar::f32);
}

TEST(GemmRowInvariance, SomeRowsOfABigProductEqualTheProductOfThoseRows) {
  // Few rows use another path, for one, two, four … rows at once. A gap makes the depth 1019 collide in the
  // cache.
  for (const Scalar stored : {Scalar::bf16, Scalar::f16, Scalar::f32}) {
    for (const auto& [transposes, depth] : {std::pair{0, 700}, {2, 700}, {2, 1019}}) {
      const Case big({200, 100, depth}, {Scalar::f32, stored, stored, stored}, transposes);
      const Tensor whole = big.result(with_threads(2));
      for (const std::int64_t height : {1, 2, 3, 8, 9, 16, 17, 36, 64, 65}) {
        for (std::int64_t i = 0; i + height <= big.g.m; i += 53) {
          SCOPED_TRACE(::testing::Message() << height << " rows from " << i << ", " << name(stored));
          Tensor some(big.c.type, height, big.c.columns);
          Gemm g = big.g;
          g.m = height;
          g.a.matrix.data = static_cast<const float*>(big.g.a.matrix.data) + i * big.a.ld;
          g.c = some;
          run(g);
          for (std::int64_t j = 0; j < height; ++j) {
            const std::byte* want = whole.bytes.data() + whole.at(i + j, 0) * bytes_of(whole.type);
            const std::byte* got = some.bytes.data() + some.at(j, 0) * bytes_of(some.type);
            const auto bytes = static_cast<std::size_t>(big.c.columns) * bytes_of(some.type);
            EXPECT_TRUE(std::equal(got, got + bytes, want)) << "row " << j;
          }
        }
      }
    }
  }
}

// ---- Leaves

struct LeafCase {
  std::vector<std::int64_t> lengths;
  std::int64_t rows_per_leaf;
};

/// Products like weight gradients: k is the token axis, and A is transposed.
class GemmLeaves : public ::testing::TestWithParam<LeafCase> {
 protected:
  static Size size(std::int64_t m, std::int64_t n) {
    return {m, n, testing::Batch(GetParam().lengths).tokens};
  }
  static void cut(Case& x) { x.cut(GetParam().lengths, GetParam().rows_per_leaf); }
};

TEST_P(GemmLeaves, AreSummedInTheStatedOrder) {
  for (const Formats& formats : {kF32, kF64}) {
    Case x(size(37, 45), formats, 1);
    cut(x);
    for (const bool accumulate : {false, true}) {
      x.g.accumulate = accumulate;
      expect_stated_bits(x, formats.operand);
    }
  }
}

TEST_P(GemmLeaves, AreSummedInTheStatedOrderBeforeARoundedStore) {
  Case x(size(600, 9), kBf16, 1);
  cut(x);
  expect_stated_bits(x, Scalar::f32);
}

TEST_P(GemmLeaves, CanBeSummedInSeveralCalls) {
  Case x(size(37, 45), kF32, 1);
  cut(x);
  const auto step = static_cast<std::size_t>(x.g.rows_per_leaf);
  Tensor in_turn = x.c;
  for (std::size_t r = 0; r < x.rows.size(); r += step) {
    Gemm leaf = x.g;
    leaf.c = in_turn;
    leaf.accumulate = r > 0;
    leaf.rows = std::span(x.rows).subspan(r, std::min(x.rows.size() - r, step));
    run(leaf);
  }
  EXPECT_TRUE(in_turn == x.result());
}

std::string leaf_name(const ::testing::TestParamInfo<LeafCase>& info) {
  return fmt::format("{}_by_{}", fmt::join(info.param.lengths, "_"), info.param.rows_per_leaf);
}

INSTANTIATE_TEST_SUITE_P(Every, GemmLeaves,
                         ::testing::Values(LeafCase{{256, 256}, 1}, LeafCase{{300}, 1},
                                           LeafCase{{40, 7, 1, 90}, 1}, LeafCase{{600, 513, 256, 20}, 1},
                                           LeafCase{{100, 300, 5, 257, 31}, 2}, LeafCase{{20, 30, 50}, 5},
                                           LeafCase{{0, 33, 0, 0, 290, 0}, 2}),
                         leaf_name);

TEST(GemmOfManyShortRows, HasTheStatedBits) {
  for (const Size& size : sizes_of_short_rows()) {
    for (const std::int64_t rows_per_leaf : {1, 3}) {
      Case x(size, kF32, 1);
      x.cut(many_short_rows(), rows_per_leaf);
      for (const bool accumulate : {false, true}) {
        x.g.accumulate = accumulate;
        expect_stated_bits(x, Scalar::f32);
      }
      Case rounded(size, kBf16, 1);
      rounded.cut(many_short_rows(), rows_per_leaf);
      expect_stated_bits(rounded, Scalar::f32);
    }
  }
}

TEST(GemmBlocks, ContinueAnEarlierCall) {
  const Case whole({19, 23, 700}, kF32);
  Tensor in_turn = whole.c;
  for (std::int64_t k = 0; k < whole.g.k; k += 512) {
    Gemm part = whole.g;
    part.k = std::min<std::int64_t>(512, whole.g.k - k);
    part.a.matrix.data = static_cast<const float*>(whole.g.a.matrix.data) + k;
    part.b.matrix.data = static_cast<const float*>(whole.g.b.matrix.data) + k * whole.b.ld;
    part.c = in_turn;
    part.accumulate = part.continue_blocks = k > 0;
    run(part);
  }
  EXPECT_TRUE(in_turn == whole.result());
}

// ---- Epilogue

using EpilogueCase = std::tuple<Scalar, Scalar, int>;  // C, rounded, bit 0: bias, bit 1: addend
class GemmEpilogue : public ::testing::TestWithParam<EpilogueCase> {};

TEST_P(GemmEpilogue, FusedGivesTheBitsOfSeparateSteps) {
  const auto& [c_type, rounded, parts] = GetParam();
  Case x({30, 70, 300}, {Scalar::bf16, Scalar::bf16, Scalar::bf16, c_type}, 2);
  Tensor sums(Scalar::f32, x.g.m, x.g.n);
  Gemm plain = x.g;
  plain.c = sums;
  run(plain);

  const std::vector<float> bias = values_as<float>(x.bias), addend = values_as<float>(x.addend);
  Tensor expected = x.c;
  for (std::int64_t i = 0; i < x.g.m; ++i) {
    const auto n = static_cast<std::size_t>(x.g.n);
    std::vector<float> row(n);
    load_row(sums.bytes.data(), Scalar::f32, sums.at(i, 0), n, row.data());
    for (std::size_t j = 0; (parts & 1) != 0 && j < n; ++j) row[j] += bias[j];
    round_row(row.data(), n, rounded);
    for (std::size_t j = 0; (parts & 2) != 0 && j < n; ++j)
      row[j] += addend[static_cast<std::size_t>(i) * n + j];
    store_row(row.data(), n, expected.bytes.data(), c_type, expected.at(i, 0));
  }

  x.g.rounded = rounded;
  if ((parts & 1) != 0) x.add_bias();
  if ((parts & 2) != 0) x.add_addend();
  for (const Context& ctx : contexts()) EXPECT_TRUE(x.result(ctx) == expected) << describe(ctx);
}

std::string epilogue_name(const ::testing::TestParamInfo<EpilogueCase>& info) {
  const auto& [c, rounded, parts] = info.param;
  return fmt::format("{}_rounded_{}{}{}", name(c), name(rounded), (parts & 1) != 0 ? "_bias" : "",
                     (parts & 2) != 0 ? "_addend" : "");
}

INSTANTIATE_TEST_SUITE_P(Every, GemmEpilogue,
                         ::testing::Combine(::testing::Values(Scalar::f32, Scalar::tf32, Scalar::bf16,
                                                              Scalar::f16, Scalar::e5m2, Scalar::e4m3,
                                                              Scalar::f64),
                                            ::testing::Values(Scalar::f32, Scalar::bf16, Scalar::f16),
                                            ::testing::Range(0, 4)),
                         epilogue_name);

/// Few rows, more columns than rows, and more rows than columns use different paths.
TEST(GemmBias, IsAddedToTheSumOnEveryPath) {
  for (const Formats& formats :
       {kF32, kF64, kBf16, Formats{Scalar::f32, Scalar::bf16, Scalar::bf16, Scalar::f16}}) {
    for (const Size& size : {Size{1, 70, 300}, Size{20, 131, 700}, Size{100, 131, 700}, Size{131, 40, 700}}) {
      for (const int transposes : {0, 2}) {
        Case x(size, formats, transposes);
        // The masters' format, which may be wider than the result's.
        std::mt19937 random(kSeed + 1);
        x.bias = Tensor(formats.arithmetic(), 1, size.n).fill_normal(random);
        x.add_bias();
        expect_stated_bits(x, formats.arithmetic());
        x.g.rounded = Scalar::f16;
        x.add_addend();
        expect_stated_bits(x, formats.arithmetic());
      }
    }
  }
}

TEST(GemmBias, IsAddedAfterAllLeaves) {
  for (const Formats& formats : {kF32, kF64, kBf16}) {
    Case x({37, 45, 700}, formats, 1);
    x.cut({300, 20, 380}, 1);
    x.add_bias();
    expect_stated_bits(x, formats.arithmetic());
  }
}

TEST(GemmEpilogueInPlace, TheAddendMayBeCItself) {
  Case x({30, 140, 300}, {Scalar::f32, Scalar::f32, Scalar::f32, Scalar::bf16});
  x.addend = x.c;
  x.add_addend();
  const Tensor apart = x.result();
  x.g.addend = x.c;
  run(x.g);
  EXPECT_TRUE(x.c == apart);
}

}  // namespace
}  // namespace mantissa::kernels::gemm_bits_test
