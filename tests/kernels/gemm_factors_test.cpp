// Products with accumulators that round, and of operands that saturate or flush: the stated bits.
#include <fmt/format.h>

#include "kernels/gemm_case.h"

namespace mantissa::kernels::gemm_factors_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

void expect_stated_bits(const Case& x) {
  const Tensor expected = as_stated<float>(x);
  for (const Context& ctx : contexts())
    EXPECT_TRUE(x.result(ctx) == expected) << describe(ctx) << ", seed " << kSeed;
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
}  // namespace mantissa::kernels::gemm_factors_test
