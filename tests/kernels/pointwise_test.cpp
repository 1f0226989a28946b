// Pointwise programs: every instruction's bits, every format and shape, in place and broadcast, on every
// instruction set and thread count.
#include "mantissa/kernels/pointwise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "kernels/pointwise_testing.h"
#include "kernels/reference/expression_text.h"
#include "kernels/reference/pointwise.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/row_math.h"
#include "mantissa/kernels/expression.h"

namespace mantissa::kernels::pointwise_test {
namespace {

using testing::contexts;
using testing::describe;
using testing::input;
using testing::is_f64;
using testing::kSeed;
using testing::normal_tensors;
using testing::output;
using testing::rounding_error;
using testing::swiglu;
using testing::Tensor;
using Reg = ExpressionBuilder::Reg;

/// The result of one instruction, in T.
template <class T>
T spelled(const Instruction& in, T a, T b, T c) {
  const auto math = [a](MathFunction f) {
    T y = 0;
    map_row(f, &a, 1, &y, testing::converter());
    return y;
  };
  switch (in.op) {
    case Opcode::add:
      return a + b;
    case Opcode::sub:
      return a - b;
    case Opcode::mul:
      return a * b;
    case Opcode::div:
      return a / b;
    case Opcode::fma:
      return std::fma(a, b, c);
    case Opcode::neg:
      return -a;
    case Opcode::exp:
      return math(MathFunction::exp);
    case Opcode::log:
      return math(MathFunction::log);
    case Opcode::tanh:
      return math(MathFunction::tanh);
    case Opcode::normal_cdf:
      return math(MathFunction::normal_cdf);
    case Opcode::sigmoid:
      return math(MathFunction::sigmoid);
    case Opcode::rsqrt:
      return 1 / std::sqrt(a);
    case Opcode::relu:
      return a <= 0 ? 0 : a;
    case Opcode::sqrt:
      return std::sqrt(a);
    case Opcode::abs:
      return std::abs(a);
    case Opcode::sign:
      return a > 0 ? T{1} : a < 0 ? T{-1} : a;
    case Opcode::max:
      return a < b ? b : a;
    case Opcode::min:
      return b < a ? b : a;
    case Opcode::round:
      round_row(&a, 1, in.format, testing::converter());
      return a;
    default:
      return a;
  }
}

/// A whole program on one element, in T.
template <class T>
std::vector<T> spelled(const Expression& e, const std::vector<double>& inputs) {
  std::array<T, 16> r{};
  std::vector<T> outputs(e.outputs);
  for (const Instruction& in : e.code) {
    if (in.op == Opcode::load) {
      r[in.dst] = static_cast<T>(inputs[in.index]);
    } else if (in.op == Opcode::constant) {
      r[in.dst] = static_cast<T>(in.value);
    } else if (in.op == Opcode::store) {
      outputs[in.index] = r[in.a];
    } else {
      r[in.dst] = spelled(in, r[in.a], r[in.b], r[in.c]);
    }
  }
  return outputs;
}

/// Inputs and outputs of a program over [rows, width].
struct Operands {
  std::vector<Tensor> in, out;
  std::vector<Broadcast> broadcast;

  std::vector<PointwiseInput> inputs() const {
    std::vector<PointwiseInput> all;
    for (std::size_t k = 0; k < in.size(); ++k)
      all.push_back(input(in[k], broadcast.empty() ? Broadcast::none : broadcast[k]));
    return all;
  }
  std::vector<PointwiseOutput> outputs() {
    std::vector<PointwiseOutput> all;
    for (Tensor& t : out) all.push_back(output(t));
    return all;
  }
  bool f64() const {
    const auto wide = [](const Tensor& t) { return is_f64(t.type); };
    return std::ranges::any_of(in, wide) || std::ranges::any_of(out, wide);
  }
};

/// Runs `e` in every context and expects the bits of the instructions one by one.
void expect_spelled(const Expression& e, Operands o) {
  const std::int64_t rows = o.out[0].rows, width = o.out[0].columns;
  std::vector<Tensor> expected = o.out;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < width; ++j) {
      std::vector<double> element;
      for (const Tensor& t : o.in) element.push_back(t.get(t.rows == 1 ? 0 : i, j));
      for (std::size_t k = 0; k < expected.size(); ++k) {
        expected[k].set(
            i, j,
            o.f64() ? spelled<double>(e, element)[k] : static_cast<double>(spelled<float>(e, element)[k]));
      }
    }
  }
  for (const Context& ctx : contexts()) {
    SCOPED_TRACE(describe(ctx) + ": " + reference::text_of(e));
    pointwise(ctx, e, rows, width, o.inputs(), o.outputs());
    for (std::size_t k = 0; k < expected.size(); ++k) EXPECT_EQ(o.out[k], expected[k]);
  }
}

TEST(Pointwise, EveryInstructionHasItsBits) {
  for (const Scalar s : {Scalar::f32, Scalar::f64}) {
    for (int op = static_cast<int>(Opcode::add); op <= static_cast<int>(Opcode::round); ++op) {
      const Instruction in{
          .op = static_cast<Opcode>(op), .dst = 3, .a = 0, .b = 1, .c = 2, .format = Scalar::f16};
      const Expression e{{{.op = Opcode::load, .dst = 0, .index = 0},
                          {.op = Opcode::load, .dst = 1, .index = 1},
                          {.op = Opcode::load, .dst = 2, .index = 2},
                          in,
                          {.op = Opcode::store, .a = 3}},
                         3,
                         1};
      std::vector<Tensor> in_values = normal_tensors(3, s, 1, 533);
      const double specials[] = {0.0, -0.0, 1e-30, 1e30, 88.0, -104.0};
      for (std::int64_t i = 0; i < 6; ++i) in_values[0].set(0, 20 * i, specials[i]);
      expect_spelled(e, {in_values, {Tensor(s, 1, 533)}, {}});
    }
  }
}

TEST(Pointwise, ReluKeepsNanAndHasNoNegativeZero) {
  ExpressionBuilder b;
  b.store(b.relu(b.load(0)), 0);
  const Tensor x(Scalar::f32, 1, 4, std::array{-0.0, std::nan(""), -3.0, 2.0}.data());
  Tensor y(Scalar::f32, 1, 4);
  pointwise({.simd = best_simd()}, b.build(), 1, 4, std::array{input(x)}, std::array{output(y)});
  EXPECT_FALSE(std::signbit(y.get(0, 0)));
  EXPECT_EQ(y.get(0, 0), 0);
  EXPECT_TRUE(std::isnan(y.get(0, 1)));
  EXPECT_EQ(y.get(0, 2), 0);
  EXPECT_EQ(y.get(0, 3), 2);
}

TEST(Pointwise, ReadsAndWritesEveryFormat) {
  for (const Scalar from : kScalars) {
    for (const Scalar to : kScalars) {
      std::vector<Tensor> in = normal_tensors(1, from, 3, 401);
      in.push_back(normal_tensors(1, Scalar::bf16, 3, 401, 7)[0]);
      expect_spelled(swiglu(), {in, {Tensor(to, 3, 401)}, {}});
    }
  }
}

class PointwiseShapes : public ::testing::TestWithParam<std::pair<std::int64_t, std::int64_t>> {};

TEST_P(PointwiseShapes, DoNotChangeTheElements) {
  const auto [rows, width] = GetParam();
  for (const Scalar s : {Scalar::f32, Scalar::bf16}) {
    expect_spelled(swiglu(), {normal_tensors(2, s, rows, width), {Tensor(s, rows, width)}, {}});
  }
}

TEST_P(PointwiseShapes, BroadcastARowToAllRows) {
  const auto [rows, width] = GetParam();
  ExpressionBuilder b;
  b.store(b.fma(b.load(0), b.load(1), b.load(2)), 0);
  for (const Scalar s : {Scalar::f32, Scalar::f64, Scalar::bf16}) {
    std::vector<Tensor> in = normal_tensors(1, s, rows, width);
    for (const Scalar row : {Scalar::f32, Scalar::f16}) in.push_back(normal_tensors(1, row, 1, width, 3)[0]);
    expect_spelled(
        b.build(),
        {in, {Tensor(s, rows, width)}, {Broadcast::none, Broadcast::over_rows, Broadcast::over_rows}});
  }
}

INSTANTIATE_TEST_SUITE_P(All, PointwiseShapes,
                         ::testing::Values(std::pair{1, 1}, std::pair{1, 16}, std::pair{37, 1},
                                           std::pair{700, 5}, std::pair{3, 512}, std::pair{5, 513},
                                           std::pair{9, 1040}, std::pair{2, 9001}),
                         [](const auto& i) { return fmt::format("{}x{}", i.param.first, i.param.second); });

TEST(Pointwise, AcceptsAnEmptyRange) {
  pointwise({.simd = best_simd()}, swiglu(), 0, 8, std::array<PointwiseInput, 2>{},
            std::array<PointwiseOutput, 1>{});
}

/// The second output needs the first input after the first output has replaced it.
TEST(Pointwise, AnOutputMayShareAnInputsMemory) {
  ExpressionBuilder b;
  const Reg x = b.load(0), y = b.load(1);
  b.store(b.mul(x, y), 0);
  b.store(b.add(b.exp(x), y), 1);
  const Expression e = b.build();
  for (const Scalar s : kScalars) {
    for (const std::int64_t width : {512, 3001}) {
      Operands apart{normal_tensors(2, s, 4, width), {Tensor(s, 4, width), Tensor(s, 4, width)}, {}};
      Operands shared = apart;
      for (const Context& ctx : contexts()) {
        shared.in = apart.in;
        pointwise(ctx, e, 4, width, apart.inputs(), apart.outputs());
        pointwise(ctx, e, 4, width, shared.inputs(), std::array{output(shared.in[0]), output(shared.in[1])});
        EXPECT_EQ(shared.in, apart.out) << name(s) << ", " << describe(ctx);
      }
    }
  }
}

/// sigmoid is within 1.97 ulp (core/numeric/math-inl.h), and each product adds a rounding; an ulp is at most
/// 2u of the value.
TEST(Pointwise, SwigluIsWithinTheErrorOfItsArithmetic) {
  for (const Scalar s : {Scalar::f32, Scalar::bf16, Scalar::f16}) {
    Operands o{normal_tensors(2, s, 7, 300), {Tensor(s, 7, 300)}, {}};
    pointwise({.simd = best_simd()}, swiglu(), 7, 300, o.inputs(), o.outputs());
    for (std::int64_t i = 0; i < 7 * 300; ++i) {
      const std::array in{o.in[0].get(i / 300, i % 300), o.in[1].get(i / 300, i % 300)};
      const double exact = reference::evaluate(swiglu(), in)[0];
      const double error = (2 * 1.97 + 2.02) * unit_roundoff(Scalar::f32) * std::abs(exact);
      EXPECT_NEAR(o.out[0].get(i / 300, i % 300), exact, error + rounding_error(s, std::abs(exact) + error));
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::pointwise_test
