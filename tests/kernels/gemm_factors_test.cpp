// Products of operands in several parts, and with accumulators that round: the stated bits, and the errors
// that theory predicts.
#include <fmt/format.h>

#include <cmath>

#include "kernels/gemm_case.h"
#include "mantissa/base/error.h"
#include "mantissa/kernels/reference/gemm.h"

namespace mantissa::kernels {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

void expect_stated_bits(const Case& x) {
  const Tensor expected = as_stated<float>(x);
  for (const Context& ctx : contexts())
    EXPECT_TRUE(x.result(ctx) == expected) << describe(ctx) << ", seed " << kSeed;
}

void split(Case& x, int parts) {
  x.g.a.operand = x.g.b.operand = Factor(Scalar::bf16, parts);
}

class GemmParts : public ::testing::TestWithParam<int> {};

TEST_P(GemmParts, HaveTheStatedBits) {
  const auto parts = GetParam();
  for (const Size& size : {Size{1, 17, 256}, Size{3, 40, 70}, Size{29, 131, 600}, Size{100, 9, 513}}) {
    for (const int transposes : {0, 1, 2, 3}) {
      Case x(size, kF32, transposes);
      split(x, parts);
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
      x.cut({300, 20, 380}, rows_per_leaf);
      x.g.accumulate = accumulate;
      expect_stated_bits(x);
    }
  }
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

INSTANTIATE_TEST_SUITE_P(Of, GemmParts, ::testing::Values(1, 2, 3));

TEST(GemmParts, ReduceTheErrorAsTheoryPredicts) {
  // n parts hold 8 n bits and leave at most 2^-8n-1 of an operand, so an element errs by at most twice that
  // of Σ|a||b|, apart from the sum's own roundings in f32.
  const Size size{40, 60, 512};
  const Case exact(size, kF32);
  const reference::GemmResult expected = reference::gemm(exact.g);
  double before = 0;
  for (const int parts : {1, 2, 3}) {
    Case x(size, kF32);
    split(x, parts);
    const std::vector<double> c = x.result().values();
    const double dropped = parts == 1 ? 2 : parts + 1;  // omitted products of parts, and the remainder
    double worst = 0;
    for (std::size_t i = 0; i < c.size(); ++i) {
      const double error = std::abs(c[i] - expected.c[i]) / expected.magnitude[i];
      EXPECT_LE(error, dropped * std::ldexp(1.0, -8 * parts - 1) * 1.1 + 300 * unit_roundoff(Scalar::f32));
      worst = std::max(worst, error);
    }
    if (parts == 2) {
      EXPECT_LT(worst, before / 64) << "two parts hold 8 bits more, and sums keep most of them";
    }
    before = worst;
  }
}

TEST(GemmParts, OfNonfiniteValuesStayInTheirRow) {
  Case x({5, 40, 33}, kF32);
  x.a.set(2, 7, std::numeric_limits<double>::infinity());
  split(x, 3);
  const Tensor c = x.result();
  for (std::int64_t j = 0; j < 40; ++j) {
    EXPECT_FALSE(std::isfinite(c.get(2, j)));
    EXPECT_TRUE(std::isfinite(c.get(3, j)));
  }
}

TEST(GemmParts, MustBeEquallyManyForBothOperands) {
  Case x({4, 4, 4}, kF32);
  x.g.a.operand = Factor(Scalar::bf16, 2);
  EXPECT_THROW(x.result(), DtypeError);
}

using AccumulatorCase = std::tuple<Scalar, std::int64_t>;
class GemmAccumulators : public ::testing::TestWithParam<AccumulatorCase> {};

TEST_P(GemmAccumulators, HaveTheStatedBits) {
  const auto& [format, block] = GetParam();
  for (const Size& size : {Size{1, 17, 300}, Size{20, 131, 600}, Size{100, 9, 70}}) {
    for (const int transposes : {0, 3}) {
      Case x(size, kBf16, transposes);
      x.g.accumulator = {format, block};
      expect_stated_bits(x);
      x.add_bias();
      x.g.rounded = Scalar::bf16;
      x.add_addend();
      expect_stated_bits(x);
    }
  }
}

TEST_P(GemmAccumulators, CountFromTheStartOfEachLeaf) {
  const auto& [format, block] = GetParam();
  for (const bool accumulate : {false, true}) {
    Case x({33, 70, 700}, kF32, 1);
    x.cut({300, 20, 380}, 2);
    x.g.accumulator = {format, block};
    x.g.accumulate = accumulate;
    expect_stated_bits(x);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, GemmAccumulators,
                         ::testing::Combine(::testing::Values(Scalar::f16, Scalar::bf16, Scalar::tf32,
                                                              Scalar::e5m2),
                                            ::testing::Values(0, 1, 32, 100, 500)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", name(std::get<0>(info.param)),
                                              std::get<1>(info.param));
                         });

TEST(GemmFactors, SaturateAndFlushOnLoad) {
  Case x({9, 40, 50}, kF32);
  x.a.set(1, 1, 1e6);
  x.a.set(2, 2, 1e-6);
  for (const bool saturate : {false, true}) {
    for (const bool flush : {false, true}) {
      Factor factor = Scalar::f16;
      factor.saturate = saturate;
      factor.flush_subnormals = flush;
      x.g.a.operand = x.g.b.operand = factor;
      expect_stated_bits(x);
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels
