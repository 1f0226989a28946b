// What an optimizer's step does beside its sweeps: the norm of the gradient with its finite check, sums in
// chunks, and casts. The bits are the same on every instruction set and thread count.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <utility>

#include "kernels/adamw.h"
#include "kernels/row_testing.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/kernels/update.h"

namespace mantissa::kernels::gradient_norm_test {
namespace {

using testing::contexts;
using testing::describe;
using testing::is_f64;
using testing::kSeed;
using testing::lane_sum;
using testing::rounding_error;
using testing::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class EveryFormat : public ::testing::TestWithParam<Scalar> {};

TEST_P(EveryFormat, GradientNormHasTheBitsOfTheStatedOrderEverywhere) {
  std::mt19937 random(kSeed);
  for (const std::int64_t count : {0, 1, 17, 4096, 4097, 100001}) {
    const Tensor gradient = Tensor(GetParam(), 1, count).fill_normal(random);
    const std::vector<double> x = gradient.values();
    double expected = 0;
    for (std::int64_t begin = 0; begin < count; begin += 4096) {
      expected +=
          lane_sum<double>(std::min<std::int64_t>(4096, count - begin), [&](std::int64_t i, double sum) {
            const double value = x[static_cast<std::size_t>(begin + i)];
            return sum + value * value;
          });
    }
    for (const Context& ctx : contexts()) {
      const GradientNorm norm = gradient_norm(ctx, gradient.bytes.data(), GetParam(), count);
      EXPECT_EQ(norm.sum_of_squares, expected) << count << " elements, " << describe(ctx);
      EXPECT_TRUE(norm.finite);
    }
  }
}

TEST_P(EveryFormat, GradientNormDetectsNonfiniteValues) {
  std::mt19937 random(kSeed);
  constexpr std::int64_t kCount = 9001;
  const Tensor finite = Tensor(GetParam(), 1, kCount).fill_normal(random);
  for (const std::int64_t where : {std::int64_t{0}, std::int64_t{4095}, std::int64_t{5000}, kCount - 1}) {
    for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
      Tensor gradient = finite;
      gradient.set(0, where, bad);
      for (const Context& ctx : contexts()) {
        EXPECT_FALSE(gradient_norm(ctx, gradient.bytes.data(), GetParam(), kCount).finite)
            << where << ' ' << bad;
      }
    }
  }
}

TEST_P(EveryFormat, CastsToEveryFormatWithOneRounding) {
  std::mt19937 random(kSeed);
  const Tensor src = Tensor(GetParam(), 1, 40003).fill_normal(random);
  for (const Scalar to : kScalars) {
    const Tensor expected(to, 1, src.columns, src.values().data());
    for (const Context& ctx : contexts()) {
      Tensor dst(to, 1, src.columns);
      cast(ctx, src.columns, src.bytes.data(), GetParam(), dst.bytes.data(), to);
      EXPECT_EQ(dst, expected) << "to " << name(to) << ", " << describe(ctx);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryFormat, ::testing::ValuesIn(kScalars),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(GradientNorm, OfTheLargestValuesIsFinite) {
  for (const Scalar s : kScalars) {
    const Tensor gradient(s, 1, 2, std::array{traits(s).max_finite, -traits(s).max_finite}.data());
    const GradientNorm norm = gradient_norm({.simd = best_simd()}, gradient.bytes.data(), s, 2);
    EXPECT_TRUE(norm.finite) << name(s);
    EXPECT_EQ(std::isinf(norm.sum_of_squares), is_f64(s)) << name(s);
  }
}

TEST(ChunkedSum, AddsInOrderWithinChunksAndChunksInOrder) {
  std::mt19937 random(kSeed);
  for (const Scalar s : {Scalar::f32, Scalar::f64}) {
    for (const std::int64_t count : {0, 1, 4096, 4097, 12345}) {
      const Tensor values = Tensor(s, 1, count).fill_normal(random);
      double expected = 0, chunk = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        chunk += values.get(0, i);
        if (i % 4096 == 4095 || i == count - 1) expected += std::exchange(chunk, 0.0);
      }
      EXPECT_EQ(chunked_sum(values.bytes.data(), s, count), expected);
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::gradient_norm_test
