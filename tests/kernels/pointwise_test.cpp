// Pointwise programs: every instruction's bits, every format and shape, in place and broadcast, on every
// instruction set and thread count; programs as text; building, and joining without a change of any bit.
#include "mantissa/kernels/pointwise.h"

#include <gtest/gtest.h>

#include <array>

#include "kernels/row_testing.h"
#include "mantissa/base/error.h"
#include "mantissa/kernels/expression.h"
#include "mantissa/kernels/reference/pointwise.h"
#include "mantissa/numeric/row_math.h"

namespace mantissa::kernels {
namespace {

using testing::contexts;
using testing::describe;
using testing::is_f64;
using testing::kSeed;
using testing::rounding_error;
using testing::Tensor;
using Reg = ExpressionBuilder::Reg;

PointwiseInput input(const Tensor& t, Broadcast broadcast = Broadcast::none) {
  return {t.bytes.data(), t.type, broadcast};
}
PointwiseOutput output(Tensor& t) {
  return {t.bytes.data(), t.type};
}

Expression swiglu() {
  ExpressionBuilder b;
  const Reg gate = b.load(0);
  b.store(b.mul(b.mul(gate, b.sigmoid(gate)), b.load(1)), 0);
  return b.build();
}

/// What one instruction gives, spelled in T.
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
    case Opcode::erf:
      return math(MathFunction::erf);
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

/// A whole program on one element.
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

/// Runs `e` everywhere and expects the bits of the instructions one by one.
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
    SCOPED_TRACE(describe(ctx) + ": " + e.str());
    pointwise(ctx, e, rows, width, o.inputs(), o.outputs());
    for (std::size_t k = 0; k < expected.size(); ++k) EXPECT_EQ(o.out[k], expected[k]);
  }
}

std::vector<Tensor> normal_tensors(std::size_t n, Scalar type, std::int64_t rows, std::int64_t width,
                                   unsigned seed = kSeed) {
  std::mt19937 random(seed);
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < n; ++i) all.push_back(Tensor(type, rows, width).fill_normal(random));
  return all;
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

TEST_P(PointwiseShapes, HaveTheSameElements) {
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
                                           std::pair{9, 1040}, std::pair{2, 9001}));

TEST(Pointwise, NothingToDoIsDone) {
  pointwise({.simd = best_simd()}, swiglu(), 0, 8, std::array<PointwiseInput, 2>{},
            std::array<PointwiseOutput, 1>{});
}

/// The second output needs the first input after the first output took its place.
TEST(Pointwise, AnOutputMayBeAnInputsMemory) {
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

/// sigmoid is within 1.97 ulp (numeric/math-inl.h), each product adds a rounding; an ulp is at most 2u of the
/// value.
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

TEST(Expression, IsReadable) {
  ExpressionBuilder b;
  const Reg gate = b.load(0);
  b.store(b.round(b.mul(b.mul(gate, b.sigmoid(gate)), b.load(1)), Scalar::bf16), 0);
  EXPECT_EQ(b.build().str(), "out0 = round<bf16>(in0 * sigmoid(in0) * in1)");
}

TEST(Expression, BracketsFollowTheOrderOfComputation) {
  ExpressionBuilder b;
  const Reg x = b.load(0), y = b.load(1), half = b.constant(0.5);
  b.store(b.sub(x, b.sub(y, half)), 0);
  b.store(b.mul(x, b.mul(y, half)), 1);
  b.store(b.div(b.add(x, y), b.neg(b.fma(x, y, half))), 2);
  EXPECT_EQ(b.build().str(),
            "out0 = in0 - (in1 - 0.5); out1 = in0 * (in1 * 0.5); out2 = (in0 + in1) / (-fma(in0, in1, 0.5))");
}

TEST(Expression, NamesWhatIsReadTwice) {
  ExpressionBuilder b;
  const Reg s = b.tanh(b.load(0));
  b.store(b.mul(s, s), 0);
  b.store(s, 1);
  EXPECT_EQ(b.build().str(), "t0 = tanh(in0); out0 = t0 * t0; out1 = t0");
}

std::size_t registers_of(const Expression& e) {
  std::size_t most = 0;
  for (const Instruction& in : e.code) most = std::max<std::size_t>(most, in.dst + 1U);
  return most;
}

TEST(ExpressionBuilder, UsesRegistersAgain) {
  ExpressionBuilder b;
  Reg sum = b.load(0);
  for (int i = 0; i < 100; ++i) sum = b.add(b.exp(sum), b.constant(i));
  b.store(sum, 0);
  EXPECT_EQ(registers_of(b.build()), 2U);
}

TEST(ExpressionBuilder, ComputesNothingTwiceAndNothingUnread) {
  ExpressionBuilder b;
  b.log(b.load(0));
  b.store(b.add(b.exp(b.load(0)), b.exp(b.load(0))), 0);
  EXPECT_EQ(b.build().code.size(), 4U);  // load, exp, add, store
}

TEST(ExpressionBuilder, SaysWhereAProgramIsTooLarge) {
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
  e.inputs = static_cast<std::uint8_t>(inputs);  // also those that nothing reads
  return e;
}

struct Joint {
  Scalar in, middle, out;
  Scalar arithmetic() const {
    return is_f64(in) || is_f64(middle) || is_f64(out) ? Scalar::f64 : Scalar::f32;
  }
};

class Fusion : public ::testing::TestWithParam<Joint> {};

/// A producer (inputs a, b; outputs p, q), then a consumer of q, a, c and p. Random programs, seeds printed
/// by the trace.
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
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + fused->str());
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

TEST(Fuse, ShowsTheRoundingAtTheJoint) {
  ExpressionBuilder residual;
  residual.store(residual.add(residual.load(0), residual.load(1)), 0);
  const std::vector<Wire> wires{{Wire::From::own}, {Wire::From::output, 0, Scalar::bf16}};
  const auto fused = fuse(swiglu(), wires, residual.build(), {false}, Scalar::f32);
  ASSERT_TRUE(fused.has_value());
  EXPECT_EQ(fused->str(), "out0 = in2 + round<bf16>(in0 * sigmoid(in0) * in1)");
}

TEST(Fuse, FailsWhereTheLimitsDoNotSuffice) {
  ExpressionBuilder sum;
  Reg total = sum.load(0);
  for (std::size_t i = 1; i < 6; ++i) total = sum.add(total, sum.load(i));
  sum.store(total, 0);
  std::vector<Wire> wires(6);
  wires[0] = {Wire::From::output, 0, Scalar::f32};
  EXPECT_TRUE(fuse(swiglu(), wires, sum.build(), {true}, Scalar::f32).has_value());      // 2 + 5 inputs
  EXPECT_FALSE(fuse(sum.build(), wires, sum.build(), {true}, Scalar::f32).has_value());  // 6 + 5
}

}  // namespace
}  // namespace mantissa::kernels
