// Scaled rotary frequencies: the f32 values of transformers, the formulas within the roundings of either
// format, and the tables computed from them.
#include "mantissa/kernels/rope_scaling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/reference/rope.h"
#include "kernels/rope_golden.h"
#include "kernels/row_testing.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/kernels/rope.h"

namespace mantissa::kernels::rope_scaling_test {
namespace {

using testing::Tensor;
using Kind = RopeScaling::Kind;

TEST(RopeScaling, HasTheValuesOfTransformers) {
  for (const GoldenFrequencies& g : kGoldenFrequencies) {
    SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(g.scaling.kind) << ", head_dim "
                                      << g.head_dim << ", length " << g.length);
    const std::vector<double> got =
        inverse_frequencies(g.head_dim, g.theta, g.scaling, g.length, Scalar::f32);
    EXPECT_EQ(got, std::vector<double>(g.values.begin(), g.values.end()));
    EXPECT_EQ(rope_attention_factor(g.scaling), g.attention_factor);
  }
}

/// Relative error in units of u. Unscaled: theta, the exponent (times at most ln θ in the power), the power
/// and its reciprocal. Dynamic: the base's own error, where the difference of ratio and factor − 1 is smaller
/// than the ratio. Llama 3 and YaRN: the kept share errs by the roundings of its numerator over the width of
/// the ramp; then both parts, their weights and the sum.
double roundings(const GoldenFrequencies& g) {
  const RopeScaling& s = g.scaling;
  const double d = static_cast<double>(g.head_dim), unscaled = std::log(g.theta) + 4;
  const double longer = static_cast<double>(g.length) / static_cast<double>(s.original_positions);
  const double widest = s.high_freq_factor / (s.high_freq_factor - s.low_freq_factor);
  switch (s.kind) {
    case Kind::none:
      return unscaled;
    case Kind::linear:
      return unscaled + 2;
    case Kind::dynamic: {
      const double ratio = s.factor * longer, growth = 1 + s.factor * (longer - 1);
      return std::log(g.theta * growth * growth) + 4 + d / (d - 2) * (5 * ratio / growth + 2) + 2;
    }
    case Kind::llama3:
      return unscaled + widest * (unscaled + 8) + 8;
    case Kind::yarn:
      return unscaled + 2 * d + 8;
  }
  return unscaled;
}

TEST(RopeScaling, EqualsTheFormulaWithinTheRoundingsOfItsFormat) {
  for (const GoldenFrequencies& g : kGoldenFrequencies) {
    // A ramp of zero width: only the golden values test the step.
    if (g.scaling.kind == Kind::yarn && g.scaling.beta_fast == g.scaling.beta_slow) continue;
    const std::vector<double> want = reference::inverse_frequencies(g.head_dim, g.theta, g.scaling, g.length);
    for (const Scalar arithmetic : {Scalar::f32, Scalar::f64}) {
      const std::vector<double> got =
          inverse_frequencies(g.head_dim, g.theta, g.scaling, g.length, arithmetic);
      ASSERT_EQ(got.size(), want.size());
      // The reference has as many roundings, in f64.
      const double error = roundings(g) * (unit_roundoff(arithmetic) + unit_roundoff(Scalar::f64));
      for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], error * want[i])
            << name(arithmetic) << " kind " << static_cast<int>(g.scaling.kind) << " pair " << i;
      }
    }
  }
}

TEST(RopeScaling, DynamicIsUnscaledUpToTheOriginalLengthAndChangesWithTheLengthBeyond) {
  const RopeScaling s{.kind = Kind::dynamic, .factor = 4, .original_positions = 1024};
  const auto at = [&](std::int64_t length) { return inverse_frequencies(32, 10000, s, length, Scalar::f32); };
  EXPECT_EQ(at(1), inverse_frequencies(32, 10000, {}, 1, Scalar::f32));
  EXPECT_EQ(at(1024), at(1));
  for (std::size_t i = 1; i < 16; ++i) {
    EXPECT_LT(at(2048)[i], at(1024)[i]);
    EXPECT_LT(at(4096)[i], at(2048)[i]);
  }
  EXPECT_EQ(at(4096)[0], 1);
}

struct Tables {
  Tables(const RopeTable& t, Scalar type)
      : cos(type, t.positions, t.rotated / 2, 1), sin(type, t.positions, t.rotated / 2, 2) {
    rope_table(t, cos, sin);
  }
  Tensor cos, sin;
};

TEST(RopeTable, WithoutScalingIsTheSameByEitherFunction) {
  for (const Scalar type : {Scalar::f32, Scalar::f64}) {
    const Tables made({.positions = 70, .rotated = 24, .theta = 5000, .length = 9}, type);
    Tensor cos(type, 70, 12, 1), sin(type, 70, 12, 2);
    rope_table({.positions = 70, .rotated = 24, .theta = 5000}, cos, sin);
    EXPECT_EQ(made.cos, cos);
    EXPECT_EQ(made.sin, sin);
  }
}

/// Angles by core/numeric/sin_cos.h, whose cosines differ from the C library's only by rounding.
TEST(RopeTable, RotatesByTheScaledFrequencies) {
  const RopeScaling s{.kind = Kind::llama3, .factor = 8, .original_positions = 64};
  const Tables made({.positions = 300, .rotated = 32, .theta = 10000, .scaling = s}, Scalar::f32);
  const std::vector<double> frequencies = inverse_frequencies(32, 10000, s, 300, Scalar::f32);
  for (std::int64_t p = 0; p < 300; ++p) {
    for (std::int64_t i = 0; i < 16; ++i) {
      const float angle =
          static_cast<float>(p) * static_cast<float>(frequencies[static_cast<std::size_t>(i)]);
      const double u = unit_roundoff(Scalar::f32);
      ASSERT_NEAR(made.cos.get(p, i), std::cos(static_cast<double>(angle)), 1.01 * u);
      ASSERT_NEAR(made.sin.get(p, i), std::sin(static_cast<double>(angle)), 1.01 * u);
    }
  }
}

TEST(RopeTable, OfTheKindDynamicDependsOnTheLength) {
  RopeTable table{.positions = 2048,
                  .rotated = 16,
                  .theta = 10000,
                  .scaling = {.kind = Kind::dynamic, .factor = 2, .original_positions = 512}};
  const Tables whole(table, Scalar::f32);
  table.length = 2048;
  EXPECT_EQ(Tables(table, Scalar::f32).cos, whole.cos);
  table.length = 512;
  EXPECT_EQ(Tables(table, Scalar::f32).cos, Tables({.positions = 2048, .rotated = 16}, Scalar::f32).cos);
  table.length = 1024;
  EXPECT_FALSE(Tables(table, Scalar::f32).cos == whole.cos);
}

TEST(RopeTable, IsMultipliedByTheAttentionFactor) {
  RopeTable table{
      .positions = 50,
      .rotated = 16,
      .theta = 10000,
      .scaling = {.kind = Kind::yarn, .factor = 4, .original_positions = 64, .attention_factor = 1}};
  for (const Scalar angles : {Scalar::f64, Scalar::bf16}) {
    table.angles = angles;
    for (const Scalar type : {Scalar::f32, Scalar::f64}) {
      table.scaling.attention_factor = 1;
      const Tables plain(table, type);
      table.scaling.attention_factor = 1.1386294361;
      const Tables scaled(table, type);
      const double factor = round_to(1.1386294361, type);
      for (std::int64_t p = 0; p < 50; ++p) {
        for (std::int64_t i = 0; i < 8; ++i) {
          // The product is exact in f64 if the table is f32.
          const auto product = [&](const Tensor& t) {
            return round_to(round_to(t.get(p, i) * factor, type), angles);
          };
          ASSERT_EQ(scaled.cos.get(p, i), product(plain.cos));
          ASSERT_EQ(scaled.sin.get(p, i), product(plain.sin));
        }
      }
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::rope_scaling_test
