// Counts of what the roundings of an optimizer step lose, against an element by element evaluation in plain
// C++.
#include "mantissa/kernels/loss_count.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "kernels/pointwise_testing.h"
#include "kernels/row_testing.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/kernels/expression.h"

namespace mantissa::kernels::loss_count_test {
namespace {

using testing::contexts;
using testing::describe;
using testing::input;
using testing::kSeed;
using testing::Tensor;

const RoundingKey kKey{.seed = 5, .step = 11, .name_hash = hash_name("model.norm.weight")};

/// w ← w − lr·g, and a state s ← g that is stored before w is.
Expression descent() {
  ExpressionBuilder b;
  const auto w = b.load(0), g = b.load(1);
  b.store(g, 1);
  b.store(b.sub(w, b.mul(g, b.load(2))), 0);
  return b.build();
}

struct Case {
  Scalar master = Scalar::f32;
  Rounding rounding = Rounding::nearest;
  double lr = 0;
};

/// Weights near 1, gradients of many sizes, and every third gradient zero.
class Losses : public ::testing::TestWithParam<Case> {};

TEST_P(Losses, AreThoseOfEachElement) {
  const Case& c = GetParam();
  constexpr std::int64_t kRows = 7, kWidth = 531;
  std::mt19937 random(kSeed);
  Tensor w = Tensor(c.master, kRows, kWidth).fill_normal(random), g = Tensor(Scalar::f32, kRows, kWidth);
  g.fill_normal(random);
  for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
    if (i % 3 == 0) g.set(i / kWidth, i % kWidth, 0);
  }
  const Expression program = descent();
  UnmovedCount expected;
  const auto lr = static_cast<float>(c.lr);
  for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
    const double before = w.get(i / kWidth, i % kWidth), gradient = g.get(i / kWidth, i % kWidth);
    const float value = static_cast<float>(before) - static_cast<float>(gradient) * lr;
    const RandomStream stream(kKey.seed, RandomUse::rounding, kKey.name_hash, kKey.step);
    const double after = round_to(value, c.master, {c.rounding}, stream.bits(static_cast<std::uint64_t>(i)));
    if (after != before) continue;
    ++(gradient == 0 ? expected.idle : expected.lost);
  }
  ASSERT_GT(expected.lost, 0);
  ASSERT_GE(expected.idle, kRows * kWidth / 3);
  for (const Context& ctx : contexts()) {
    Tensor state(Scalar::f32, kRows, kWidth);
    const Tensor kept = w;
    const std::array inputs = {input(w), input(g), PointwiseInput{&c.lr, Scalar::f64, Broadcast::everywhere}};
    const std::array outputs = {SweepOutput{w.bytes.data(), w.type, c.rounding},
                                SweepOutput{state.bytes.data(), state.type}};
    const UnmovedCount count =
        count_unmoved(ctx, {program, kRows, kWidth, inputs, outputs, Scalar::f32, kKey}, 0);
    EXPECT_EQ(count.lost, expected.lost) << describe(ctx);
    EXPECT_EQ(count.idle, expected.idle) << describe(ctx);
    EXPECT_EQ(w, kept);
    EXPECT_EQ(state, Tensor(Scalar::f32, kRows, kWidth));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Losses,
                         ::testing::Values(Case{Scalar::bf16, Rounding::nearest, 1e-3},
                                           Case{Scalar::bf16, Rounding::stochastic, 1e-3},
                                           Case{Scalar::f16, Rounding::nearest, 1e-4},
                                           Case{Scalar::f32, Rounding::nearest, 1e-8}),
                         [](const auto& i) {
                           return fmt::format(
                               "{}_{}", name(i.param.master),
                               i.param.rounding == Rounding::nearest ? "nearest" : "stochastic");
                         });

TEST(GradientLosses, AreThoseOfTheRoundedSums) {
  constexpr std::int64_t kCount = 5003;
  std::mt19937 random(kSeed);
  std::uniform_real_distribution<double> exponent(-30, 18);
  Tensor fresh(Scalar::f32, 1, kCount);
  for (std::int64_t i = 0; i < kCount; ++i)
    fresh.set(0, i,
              i % 5 == 0 ? 0 : std::ldexp(i % 2 == 0 ? 1.5 : -1.25, static_cast<int>(exponent(random))));
  fresh.set(0, 1, std::numeric_limits<double>::infinity());  // no loss of this rounding
  for (const Scalar type : {Scalar::f16, Scalar::e5m2, Scalar::bf16}) {
    Tensor gradient = Tensor(type, 1, kCount).fill_normal(random);
    for (const bool accumulate : {false, true}) {
      RangeCount expected;
      for (std::int64_t i = 0; i < kCount; ++i) {
        const float sum = static_cast<float>(fresh.get(0, i)) +
                          (accumulate ? static_cast<float>(gradient.get(0, i)) : 0.0F);
        expected.flushed += sum != 0 && round_to(sum, type) == 0;
        expected.saturated += std::isfinite(sum) && std::abs(sum) > traits(type).max_finite;
      }
      if (type != Scalar::bf16 && !accumulate) {
        EXPECT_GT(expected.flushed, 0);
        EXPECT_GT(expected.saturated, 0);
      }
      for (const Context& ctx : contexts()) {
        const Tensor kept = gradient;
        const RangeCount count = count_gradient_losses(ctx, kCount, fresh.bytes.data(), fresh.type,
                                                       gradient.bytes.data(), gradient.type, accumulate);
        EXPECT_EQ(count.flushed, expected.flushed) << name(type) << describe(ctx);
        EXPECT_EQ(count.saturated, expected.saturated) << name(type) << describe(ctx);
        EXPECT_EQ(gradient, kept);
      }
    }
  }
}

TEST(Equal, CountsNumbersNotBits) {
  std::mt19937 random(kSeed);
  const Tensor a = Tensor(Scalar::bf16, 1, 2051).fill_normal(random);
  Tensor b(Scalar::f32, 1, 2051);
  for (std::int64_t i = 0; i < 2051; ++i) b.set(0, i, i % 4 == 0 ? a.get(0, i) + 1 : a.get(0, i));
  Tensor zero(Scalar::f32, 1, 2), other(Scalar::f32, 1, 2);
  for (Tensor* t : {&zero, &other}) t->set(0, 0, 0);
  zero.set(0, 1, 0);
  other.set(0, 1, -0.0);
  for (const Context& ctx : contexts()) {
    EXPECT_EQ(count_equal(ctx, 2051, a.bytes.data(), a.type, b.bytes.data(), b.type), 2051 - 513);
    EXPECT_EQ(count_equal(ctx, 2, zero.bytes.data(), zero.type, other.bytes.data(), other.type), 2);
  }
}

}  // namespace
}  // namespace mantissa::kernels::loss_count_test
