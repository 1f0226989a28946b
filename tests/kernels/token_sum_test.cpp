// The sum over tokens: the bits of the stated order on every instruction set and thread count and in every
// format, independent of the split into micro-batches.
#include "mantissa/kernels/token_sum.h"

#include <gtest/gtest.h>

#include "kernels/reference/token_sum.h"
#include "kernels/row_testing.h"

namespace mantissa::kernels::token_sum_test {
namespace {

using testing::Batch;
using testing::contexts;
using testing::describe;
using testing::is_f64;
using testing::kSeed;
using testing::Tensor;

struct Case {
  Scalar x;
  std::int64_t columns;
  Scalar sum() const { return is_f64(x) ? Scalar::f64 : Scalar::f32; }
};

Tensor normal(Scalar type, std::int64_t rows, std::int64_t columns, unsigned seed, std::int64_t gap = 0) {
  std::mt19937 random(seed);
  return Tensor(type, rows, columns, gap).fill_normal(random, 0.5);
}

template <class T>
Tensor spelled(const Batch& batch, const Tensor& x, const Tensor& before, bool accumulate) {
  Tensor sum = before;
  for (std::int64_t c = 0; c < x.columns; ++c) {
    const T start = accumulate ? static_cast<T>(before.get(0, c)) : T{0};
    sum.set(0, c, static_cast<double>(testing::token_sum<T>(batch, start, [&](std::int64_t t, T chain) {
              return chain + static_cast<T>(x.get(t, c));
            })));
  }
  return sum;
}

class TokenSumCases : public ::testing::TestWithParam<Case> {};

TEST_P(TokenSumCases, HasTheBitsOfTheStatedOrderEverywhere) {
  const Case& f = GetParam();
  for (const std::int64_t leaf : {1, 2}) {
    const Batch batch({300, 3, 17, 513}, leaf);
    const Tensor x = normal(f.x, batch.tokens, f.columns, kSeed, 3);
    const Tensor before = normal(f.sum(), 1, f.columns, kSeed + 1);
    for (const bool accumulate : {false, true}) {
      const Tensor want = is_f64(f.x) ? spelled<double>(batch, x, before, accumulate)
                                      : spelled<float>(batch, x, before, accumulate);
      for (const Context& ctx : contexts()) {
        Tensor sum = before;
        token_sum(ctx, batch.extent(), {f.columns, x, sum, accumulate});
        EXPECT_EQ(sum, want) << describe(ctx);
      }
    }
  }
}

/// A column errs by at most one rounding per addition of |x|: 256 tokens, then blocks, then leaves.
TEST_P(TokenSumCases, IsWithinTheErrorOfItsArithmetic) {
  const Case& f = GetParam();
  const Batch batch({300, 3, 17, 513});
  const Tensor x = normal(f.x, batch.tokens, f.columns, kSeed);
  Tensor sum(f.sum(), 1, f.columns);
  token_sum({.simd = best_simd()}, batch.extent(), {f.columns, x, sum});
  std::vector<double> values = x.values(), want(static_cast<std::size_t>(f.columns)), size(want);
  reference::token_sum(batch.tokens, f.columns, values.data(), want.data());
  for (double& v : values) v = std::abs(v);
  reference::token_sum(batch.tokens, f.columns, values.data(), size.data());
  const double roundings = 256 + 3 + 4;
  for (std::int64_t c = 0; c < f.columns; ++c) {
    const auto i = static_cast<std::size_t>(c);
    const double error = 1.01 * roundings * unit_roundoff(f.sum()) +
                         static_cast<double>(batch.tokens) * unit_roundoff(Scalar::f64);
    EXPECT_NEAR(sum.get(0, c), want[i], error * size[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenSumCases,
                         ::testing::Values(Case{Scalar::f64, 21}, Case{Scalar::f32, 1}, Case{Scalar::f32, 77},
                                           Case{Scalar::f32, 2100}, Case{Scalar::bf16, 64},
                                           Case{Scalar::f16, 17}, Case{Scalar::tf32, 8},
                                           Case{Scalar::e5m2, 8}, Case{Scalar::e4m3, 8}),
                         [](const auto& info) {
                           return std::string(name(info.param.x)) + "_" + std::to_string(info.param.columns);
                         });

TEST(TokenSum, DoesNotDependOnTheMicroBatchSplit) {
  const Batch whole({40, 300, 7, 260});
  const Tensor x = normal(Scalar::bf16, whole.tokens, 48, kSeed);
  const Context ctx{.simd = best_simd(), .threads = 2};
  Tensor once(Scalar::f32, 1, 48), split = once;
  token_sum(ctx, whole.extent(), {48, x, once});
  for (std::size_t r = 0; r < 4; r += 2) {
    const Batch part({whole.rows[r].length, whole.rows[r + 1].length});
    const ConstMatrix from{x.bytes.data() + x.at(whole.rows[r].begin, 0) * bytes_of(x.type), x.type, x.ld};
    token_sum(ctx, part.extent(), {48, from, split, r > 0});
  }
  EXPECT_EQ(split, once);
}

}  // namespace
}  // namespace mantissa::kernels::token_sum_test
