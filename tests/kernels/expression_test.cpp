// Expression programs as text, their building, and fusion that changes no bit.
#include "mantissa/kernels/expression.h"

#include <gtest/gtest.h>

#include <array>

#include "kernels/pointwise_testing.h"
#include "kernels/reference/expression_text.h"
#include "kernels/reference/pointwise.h"
#include "mantissa/core/base/error.h"

namespace mantissa::kernels::expression_test {
namespace {

using testing::input;
using testing::is_f64;
using testing::kSeed;
using testing::normal_tensors;
using testing::output;
using testing::swiglu;
using testing::Tensor;
using Reg = ExpressionBuilder::Reg;

TEST(Expression, IsReadable) {
  ExpressionBuilder b;
  const Reg gate = b.load(0);
  b.store(b.round(b.mul(b.mul(gate, b.sigmoid(gate)), b.load(1)), Scalar::bf16), 0);
  EXPECT_EQ(reference::text_of(b.build()), "out0 = round<bf16>(in0 * sigmoid(in0) * in1)");
}

TEST(Expression, BracketsFollowTheOrderOfComputation) {
  ExpressionBuilder b;
  const Reg x = b.load(0), y = b.load(1), half = b.constant(0.5);
  b.store(b.sub(x, b.sub(y, half)), 0);
  b.store(b.mul(x, b.mul(y, half)), 1);
  b.store(b.div(b.add(x, y), b.neg(b.fma(x, y, half))), 2);
  EXPECT_EQ(reference::text_of(b.build()),
            "out0 = in0 - (in1 - 0.5); out1 = in0 * (in1 * 0.5); out2 = (in0 + in1) / (-fma(in0, in1, 0.5))");
}

TEST(Expression, NamesValuesThatAreReadTwice) {
  ExpressionBuilder b;
  const Reg s = b.tanh(b.load(0));
  b.store(b.mul(s, s), 0);
  b.store(s, 1);
  EXPECT_EQ(reference::text_of(b.build()), "t0 = tanh(in0); out0 = t0 * t0; out1 = t0");
}

std::size_t registers_of(const Expression& e) {
  std::size_t most = 0;
  for (const Instruction& in : e.code) most = std::max<std::size_t>(most, in.dst + 1U);
  return most;
}

TEST(ExpressionBuilder, ReusesRegisters) {
  ExpressionBuilder b;
  Reg sum = b.load(0);
  for (int i = 0; i < 100; ++i) sum = b.add(b.exp(sum), b.constant(i));
  b.store(sum, 0);
  EXPECT_EQ(registers_of(b.build()), 2U);
}

TEST(ExpressionBuilder, SkipsRepeatedAndUnusedValues) {
  ExpressionBuilder b;
  b.log(b.load(0));
  b.store(b.add(b.exp(b.load(0)), b.exp(b.load(0))), 0);
  EXPECT_EQ(b.build().code.size(), 4U);  // load, exp, add, store
}

TEST(ExpressionBuilder, RejectsProgramsThatAreTooLarge) {
  ExpressionBuilder b;
  std::vector<Reg> values;
  for (int i = 0; i < 17; ++i) values.push_back(b.mul(b.load(0), b.constant(i)));
  Reg sum = values[0];
  for (std::size_t i = 1; i < 15; ++i) sum = b.add(sum, values[i]);
  EXPECT_EQ(registers_of([&] {
              ExpressionBuilder fits = b;
              fits.store(sum, 0);
              return fits.build();
            }()),
            16U);
  for (std::size_t i = 15; i < 17; ++i) sum = b.add(sum, values[i]);
  b.store(sum, 0);
  EXPECT_EQ(b.try_build(), std::nullopt);
  EXPECT_THROW(b.build(), ResourceError);
  ExpressionBuilder inputs, outputs;
  inputs.store(inputs.load(8), 0);
  outputs.store(outputs.load(0), 4);
  EXPECT_EQ(inputs.try_build(), std::nullopt);
  EXPECT_EQ(outputs.try_build(), std::nullopt);
}

/// A program of `steps` random instructions over `inputs` inputs with two outputs. Its values stay finite.
Expression random_program(std::size_t inputs, int steps, std::mt19937& random) {
  ExpressionBuilder b;
  std::vector<Reg> values;
  for (std::size_t i = 0; i < inputs; ++i) values.push_back(b.load(i));
  const auto pick = [&] { return values[random() % values.size()]; };
  for (int i = 0; i < steps; ++i) {
    switch (random() % 6) {
      case 0:
        values.push_back(b.add(pick(), pick()));
        break;
      case 1:
        values.push_back(b.sub(pick(), b.constant(0.25 * static_cast<double>(random() % 8))));
        break;
      case 2:
        values.push_back(b.tanh(pick()));
        break;
      case 3:
        values.push_back(b.mul(b.sigmoid(pick()), pick()));
        break;
      case 4:
        values.push_back(b.fma(b.tanh(pick()), pick(), pick()));
        break;
      default:
        values.push_back(b.round(pick(), Scalar::bf16));
    }
  }
  b.store(values.back(), 0);
  b.store(values[values.size() / 2], 1);
  Expression e = b.build();
  e.inputs = static_cast<std::uint8_t>(inputs);  // including unused ones
  return e;
}

struct Joint {
  Scalar in, middle, out;
  Scalar arithmetic() const {
    return is_f64(in) || is_f64(middle) || is_f64(out) ? Scalar::f64 : Scalar::f32;
  }
};

class Fusion : public ::testing::TestWithParam<Joint> {};

/// A producer (inputs a, b; outputs p, q), then a consumer of q, a, c and p. Random programs; the trace
/// prints the seeds.
TEST_P(Fusion, ChangesNoBit) {
  const Joint& f = GetParam();
  constexpr std::int64_t kRows = 2, kWidth = 333;
  const Context ctx{.simd = best_simd()};
  for (unsigned seed = kSeed; seed < kSeed + 20; ++seed) {
    std::mt19937 random(seed);
    const Expression producer = random_program(2, 8, random), consumer = random_program(4, 8, random);
    const std::vector<Tensor> in = normal_tensors(3, f.in, kRows, kWidth, seed);
    Tensor p(f.middle, kRows, kWidth), q = p, p_kept = p;
    Tensor x(f.out, kRows, kWidth), y = x, x_fused = x, y_fused = x;
    pointwise(ctx, producer, kRows, kWidth, std::array{input(in[0]), input(in[1])},
              std::array{output(p), output(q)});
    pointwise(ctx, consumer, kRows, kWidth, std::array{input(q), input(in[0]), input(in[2]), input(p)},
              std::array{output(x), output(y)});
    const std::vector<Wire> wires{{Wire::From::output, 1, f.middle},
                                  {Wire::From::input, 0},
                                  {Wire::From::own},
                                  {Wire::From::output, 0, f.middle}};
    const auto fused = fuse(producer, wires, consumer, {true, false}, f.arithmetic());
    ASSERT_TRUE(fused.has_value());
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + reference::text_of(*fused));
    EXPECT_EQ(fused->inputs, 3);
    EXPECT_EQ(fused->outputs, 3);
    pointwise(ctx, *fused, kRows, kWidth, std::array{input(in[0]), input(in[1]), input(in[2])},
              std::array{output(p_kept), output(x_fused), output(y_fused)});
    EXPECT_EQ(p_kept, p);
    EXPECT_EQ(x_fused, x);
    EXPECT_EQ(y_fused, y);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fusion,
                         ::testing::Values(Joint{Scalar::f32, Scalar::f32, Scalar::f32},
                                           Joint{Scalar::f32, Scalar::bf16, Scalar::f32},
                                           Joint{Scalar::bf16, Scalar::bf16, Scalar::bf16},
                                           Joint{Scalar::f16, Scalar::f16, Scalar::f16},
                                           Joint{Scalar::bf16, Scalar::tf32, Scalar::f32},
                                           Joint{Scalar::f16, Scalar::e5m2, Scalar::bf16},
                                           Joint{Scalar::f32, Scalar::e4m3, Scalar::e4m3},
                                           Joint{Scalar::f64, Scalar::f64, Scalar::f64},
                                           Joint{Scalar::f64, Scalar::f32, Scalar::f64}),
                         [](const auto& info) {
                           return std::string(name(info.param.in)) + "_" +
                                  std::string(name(info.param.middle)) + "_" +
                                  std::string(name(info.param.out));
                         });

TEST(Fuse, ShowsTheRoundingBetweenTheParts) {
  ExpressionBuilder residual;
  residual.store(residual.add(residual.load(0), residual.load(1)), 0);
  const std::vector<Wire> wires{{Wire::From::own}, {Wire::From::output, 0, Scalar::bf16}};
  const auto fused = fuse(swiglu(), wires, residual.build(), {false}, Scalar::f32);
  ASSERT_TRUE(fused.has_value());
  EXPECT_EQ(reference::text_of(*fused), "out0 = in2 + round<bf16>(in0 * sigmoid(in0) * in1)");
}

TEST(Fuse, FailsBeyondTheLimits) {
  ExpressionBuilder sum;
  Reg total = sum.load(0);
  for (std::size_t i = 1; i < 6; ++i) total = sum.add(total, sum.load(i));
  sum.store(total, 0);
  std::vector<Wire> wires(6);
  wires[0] = {Wire::From::output, 0, Scalar::f32};
  EXPECT_TRUE(fuse(swiglu(), wires, sum.build(), {true}, Scalar::f32).has_value());      // 2 + 5 inputs
  EXPECT_FALSE(fuse(sum.build(), wires, sum.build(), {true}, Scalar::f32).has_value());  // 6 + 5
}

TEST(Unrounded, ComputesWithoutTheRoundingsInside) {
  ExpressionBuilder b;
  b.store(b.mul(b.round(b.add(b.load(0), b.load(1)), Scalar::e5m2), b.load(1)), 0);
  const Expression rounds = b.build(), plain = unrounded(rounds), lower = lowered(plain, Scalar::f16);
  EXPECT_TRUE(rounds_inside(rounds));
  EXPECT_FALSE(rounds_inside(plain));
  EXPECT_EQ(least_rounding(rounds), Scalar::e5m2);
  EXPECT_EQ(least_rounding(plain), Scalar::f64);
  EXPECT_EQ(least_rounding(lower), Scalar::f16);
  const std::vector<double> inputs = {1.0, 0.03125};
  EXPECT_EQ(reference::evaluate(rounds, inputs)[0], 0.03125) << "1.03125 rounds to 1";
  EXPECT_EQ(reference::evaluate(plain, inputs)[0], 1.03125 * 0.03125);
  EXPECT_EQ(reference::evaluate(unrounded(lower), inputs)[0], 1.03125 * 0.03125);
}

}  // namespace
}  // namespace mantissa::kernels::expression_test
