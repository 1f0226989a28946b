// Products of operands in several parts: the stated bits, and the errors that theory predicts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/gemm_case.h"
#include "kernels/reference/gemm.h"
#include "mantissa/core/base/error.h"

namespace mantissa::kernels::gemm_parts_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

void expect_stated_bits(const Case& x, const std::vector<Context>& on) {
  const Tensor expected = as_stated<float>(x);
  for (const Context& ctx : on) EXPECT_TRUE(x.result(ctx) == expected) << describe(ctx) << ", seed " << kSeed;
}

void expect_stated_bits(const Case& x) {
  expect_stated_bits(x, x.g.accumulator.order == SumOrder::tile ? product_contexts() : contexts());
}

/// The number of parts, and the order of the sums of their products.
using Parts = std::tuple<int, SumOrder>;

void split(Case& x, const Parts& parts) {
  x.g.a.operand = x.g.b.operand = Factor(Scalar::bf16, std::get<int>(parts));
  x.g.accumulator.order = std::get<SumOrder>(parts);
}

class GemmParts : public ::testing::TestWithParam<Parts> {};

TEST_P(GemmParts, HaveTheStatedBits) {
  for (const Size& size :
       mantissa::testing::cases<Size>({{1, 17, 256}, {29, 131, 600}, {3, 40, 70}, {100, 9, 513}}, 2)) {
    for (const int transposes : {0, 1, 2, 3}) {
      Case x(size, kF32, transposes);
      split(x, GetParam());
      expect_stated_bits(x);
      x.add_bias();
      x.add_addend();
      expect_stated_bits(x);
    }
  }
}

TEST_P(GemmParts, HaveTheStatedBitsOverLeaves) {
  for (const std::int64_t rows_per_leaf : {1, 2}) {
    for (const bool accumulate : {false, true}) {
      Case x({33, 70, 700}, kF32, 1);
      split(x, GetParam());
      x.cut({300, 20, 0, 380}, rows_per_leaf);
      x.g.accumulate = accumulate;
      expect_stated_bits(x);
    }
  }
}

TEST_P(GemmParts, HaveTheStatedBitsOverManyShortRows) {
  for (const Size& size : mantissa::testing::cases<Size>(sizes_of_short_rows(), 1)) {
    for (const std::int64_t rows_per_leaf : {1, 3}) {
      Case x(size, kF32, 1);
      split(x, GetParam());
      x.cut(many_short_rows(), rows_per_leaf);
      x.g.accumulate = rows_per_leaf > 1;
      expect_stated_bits(x);
    }
  }
}

TEST_P(GemmParts, HaveTheStatedBitsInSeveralTilesOfEachSide) {
  for (const Size& size : mantissa::testing::cases<Size>({{530, 560, 33}, {800, 790, 33}}, 1)) {
    Case x(size, kF32);
    split(x, GetParam());
    expect_stated_bits(x, contexts());
    x.add_bias();
    expect_stated_bits(x, contexts());
  }
}

/// Tile registers are slow where they are emulated: fewer products of them.
TEST_P(GemmParts, HaveTheStatedBitsInSeveralTilesOfRegisters) {
  Case x({300, 560, 33}, kF32);
  split(x, GetParam());
  x.add_bias();
  expect_stated_bits(x, tile_contexts());
}

TEST_P(GemmParts, SwappedGiveTheTransposedProduct) {
  const Size size{33, 70, 300};
  Case x(size, kF32, 1);
  split(x, GetParam());
  x.cut({200, 100}, 1);
  const Tensor product = x.result();
  Case swapped({size.n, size.m, size.k}, kF32, 3);
  split(swapped, GetParam());
  swapped.rows = x.rows;
  swapped.g.rows = swapped.rows;
  swapped.g.a = {x.b, x.g.b.operand, true};
  swapped.g.b = {x.a, x.g.a.operand, false};
  swapped.g.swap_parts = true;
  const Tensor transposed = swapped.result();
  for (std::int64_t i = 0; i < size.m; ++i) {
    for (std::int64_t j = 0; j < size.n; ++j)
      ASSERT_EQ(product.get(i, j), transposed.get(j, i)) << i << ", " << j;
  }
}

TEST_P(GemmParts, OfNonfiniteValuesStayInTheirRow) {
  Case x({5, 40, 33}, kF32);
  x.a.set(2, 7, std::numeric_limits<double>::infinity());
  split(x, GetParam());
  const Tensor c = x.result();
  for (std::int64_t j = 0; j < 40; ++j) {
    EXPECT_FALSE(std::isfinite(c.get(2, j)));
    EXPECT_TRUE(std::isfinite(c.get(3, j)));
  }
}

std::string name_of(const ::testing::TestParamInfo<Parts>& info) {
  return fmt::format("{}_{}", std::get<int>(info.param),
                     std::get<SumOrder>(info.param) == SumOrder::tile ? "tile" : "chain");
}

INSTANTIATE_TEST_SUITE_P(Of, GemmParts,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(SumOrder::chain, SumOrder::tile)),
                         name_of);

/// The errors of a product against the exact one.
struct Errors {
  double worst = 0;  // of an element, relative to Σ|a||b|
  double rms = 0;    // over all elements, relative to that of the exact ones
};

/// The product of the same f32 numbers in double.
reference::GemmResult exact_product(const Size& size) {
  return reference::gemm(Case(size, {Scalar::f32, Scalar::f32, Scalar::f64, Scalar::f64}).g);
}

Errors errors_of(const Case& x, const reference::GemmResult& exact) {
  Errors e;
  double squares = 0, of_exact = 0;
  const std::vector<double> c = x.result().values();
  for (std::size_t i = 0; i < c.size(); ++i) {
    const double error = c[i] - exact.c[i];
    e.worst = std::max(e.worst, std::abs(error) / exact.magnitude[i]);
    squares += error * error;
    of_exact += exact.c[i] * exact.c[i];
  }
  e.rms = std::sqrt(squares / of_exact);
  return e;
}

/// Bounds what products of `parts` parts of f32 numbers omit of Σ|a||b|. Rounding to bf16 leaves at most 2^-8
/// of a number, that of the rest at most 2^-17, and three parts hold all 24 bits.
double omitted(int parts) {
  const double left[] = {1 + std::ldexp(1.0, -8), std::ldexp(1.0, -8), std::ldexp(1.0, -17)};
  double sum = 0;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) sum += i + j >= parts ? left[i] * left[j] : 0;
  }
  return sum;
}

/// Bounds the relative error of a sum of k terms in which each takes part in the most roundings that the
/// order allows. `products` counts the products of parts.
double roundings(SumOrder order, std::int64_t k, int products) {
  const std::int64_t block = order == SumOrder::tile ? 32 : 256, blocks = (k + block - 1) / block;
  const std::int64_t in_block = order == SumOrder::tile ? block / 2 + 1 : block;
  const std::int64_t after = order == SumOrder::tile ? blocks + products : blocks * products;
  const double u = static_cast<double>(in_block + after) * unit_roundoff(Scalar::f32);
  return u / (1 - u);
}

TEST(GemmPartsError, IsWithinTheBoundOfTheOrder) {
  for (const SumOrder order : {SumOrder::chain, SumOrder::tile}) {
    const Size size{40, 60, 512};
    const reference::GemmResult exact = exact_product(size);
    double before = 0;
    for (const int parts : {1, 2, 3}) {
      Case x(size, kF32);
      split(x, {parts, order});
      const double worst = errors_of(x, exact).worst;
      const double summed = roundings(order, size.k, parts * (parts + 1) / 2) * (1 + omitted(1));
      EXPECT_LE(worst, omitted(parts) + summed) << parts << " parts";
      if (parts == 2) {
        EXPECT_LT(worst, before / 64) << "two parts hold 8 bits more, and sums keep most of them";
      }
      before = worst;
    }
  }
}

TEST(GemmPartsError, OfThreePartsInTileOrderIsBelowThatOfF32) {
  for (const std::int64_t k : {4, 16, 64, 256, 512, 2000}) {
    const Size size{40, 60, k};
    const Case f32(size, kF32);
    const reference::GemmResult exact = exact_product(size);
    Case x(size, kF32);
    split(x, {3, SumOrder::tile});
    EXPECT_LT(errors_of(x, exact).rms, errors_of(f32, exact).rms) << k << " terms";
  }
}

TEST(GemmPartsInTileOrder, AreRowsOfTheirOwnInEachCallThatContinues) {
  Case in_turn({19, 23, 700}, kF32), as_leaves({19, 23, 700}, kF32);
  for (Case* x : {&in_turn, &as_leaves}) split(*x, {3, SumOrder::tile});
  as_leaves.cut({512, 188}, 1);
  Tensor c = in_turn.c;
  for (std::int64_t k = 0; k < 700; k += 512) {
    Gemm part = in_turn.g;
    part.k = std::min<std::int64_t>(512, 700 - k);
    part.a.matrix.data = static_cast<const float*>(in_turn.g.a.matrix.data) + k;
    part.b.matrix.data = static_cast<const float*>(in_turn.g.b.matrix.data) + k * in_turn.b.ld;
    part.c = c;
    part.accumulate = part.continue_blocks = k > 0;
    run(part);
  }
  EXPECT_TRUE(c == as_stated<float>(as_leaves));
}

/// Units that flush subnormal numbers to zero must not be used where a part, or a product of parts, is one.
TEST(GemmPartsInTileOrder, KeepSubnormalNumbers) {
  for (const int parts : {2, 3}) {
    for (const auto& [of_a, of_b] : {std::pair{0, 0}, {-40, -46}, {-112, 0}, {-118, 20}, {-133, 60}}) {
      Case x({80, 90, 100}, kF32, 2);
      split(x, {parts, SumOrder::tile});
      for (const auto& [tensor, exponent] : {std::pair{&x.a, of_a}, {&x.b, of_b}}) {
        for (std::int64_t i = 0; i < tensor->rows; ++i) {
          for (std::int64_t j = 0; j < tensor->columns; ++j)
            tensor->set(i, j, std::ldexp(tensor->get(i, j), exponent));
        }
      }
      SCOPED_TRACE(::testing::Message() << "exponents " << of_a << " and " << of_b);
      expect_stated_bits(x);
    }
  }
}

TEST(GemmPartsInTileOrder, AreAddedWhereAnAccumulatorRounds) {
  for (const int parts : {2, 3}) {
    for (const std::int64_t block : mantissa::testing::cases<std::int64_t>({96, 0, 512}, 1)) {
      Case x({33, 70, 700}, kF32, 1);
      split(x, {parts, SumOrder::tile});
      x.g.accumulator.format = Scalar::f16;
      x.g.accumulator.block = block;
      expect_stated_bits(x);
      for (const std::int64_t rows_per_leaf : {1, 2}) {
        x.cut({300, 20, 380}, rows_per_leaf);
        for (const bool accumulate : {false, true}) {
          x.g.accumulate = accumulate;
          expect_stated_bits(x);
        }
      }
    }
  }
}

TEST(GemmPartsInTileOrder, LeaveScalesToTheSumsOfLeaves) {
  Case x({33, 70, 700}, kF32, 1);
  split(x, {2, SumOrder::tile});
  x.cut({300, 20, 380}, 1);
  x.g.a.unscale = 0.0123F;
  x.g.b.unscale = 3.7e-5F;
  for (const bool accumulate : {false, true}) {
    x.g.accumulate = accumulate;
    expect_stated_bits(x);
  }
}

TEST(GemmPartsOfOperands, MustBeEquallyMany) {
  Case x({4, 4, 4}, kF32);
  x.g.a.operand = Factor(Scalar::bf16, 2);
  EXPECT_THROW(x.result(), DtypeError);
}

}  // namespace
}  // namespace mantissa::kernels::gemm_parts_test
