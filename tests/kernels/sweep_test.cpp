// Sweeps: programs over parameters with broadcast operands, outputs with their own formats and roundings,
// copies, and weights that accumulate their rounding errors. The bits are the same on every instruction set
// and thread count, compiled or interpreted.
#include "mantissa/kernels/sweep.h"

#include <gtest/gtest.h>

#include <array>

#include "kernels/pointwise_testing.h"
#include "kernels/reference/expression_text.h"
#include "kernels/row_testing.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/kernels/expression.h"
#include "mantissa/kernels/formulas.h"

namespace mantissa::kernels::sweep_test {
namespace {

using testing::contexts;
using testing::describe;
using testing::input;
using testing::kSeed;
using testing::Tensor;

const RoundingKey kKey{.seed = 5, .step = 11, .name_hash = hash_name("model.norm.weight")};

Tensor normal(Scalar type, std::int64_t rows, std::int64_t width, unsigned seed) {
  std::mt19937 random(kSeed + seed);
  return Tensor(type, rows, width).fill_normal(random);
}

/// Returns x as stored in element i of an output in format `to`.
double stored(double x, Scalar to, Rounding rounding, RandomUse use, std::int64_t i) {
  const RandomStream stream(kKey.seed, use, kKey.name_hash, kKey.step);
  return round_to(x, to, {rounding}, stream.bits(static_cast<std::uint64_t>(i)));
}

/// out = in0 · row + column · number: one operand of each kind.
TEST(Sweep, BroadcastsRowsColumnsAndNumbers) {
  ExpressionBuilder b;
  b.store(b.add(b.mul(b.load(0), b.load(1)), b.mul(b.load(2), b.load(3))), 0);
  const Expression program = b.build();
  const double number = 0.1;
  for (const auto& [rows, width] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 17}, {37, 512}, {5, 1300}}) {
    const Tensor x = normal(Scalar::bf16, rows, width, 1), row = normal(Scalar::f32, 1, width, 2),
                 column = normal(Scalar::f32, 1, rows, 3);
    Tensor expected(Scalar::f32, rows, width);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        const float left = static_cast<float>(x.get(i, j)) * static_cast<float>(row.get(0, j));
        expected.set(i, j, left + static_cast<float>(column.get(0, i)) * static_cast<float>(number));
      }
    }
    const std::array inputs = {input(x), input(row, Broadcast::over_rows),
                               input(column, Broadcast::over_columns),
                               PointwiseInput{&number, Scalar::f64, Broadcast::everywhere}};
    for (const Context& ctx : contexts()) {
      Tensor out(Scalar::f32, rows, width);
      const std::array outputs = {SweepOutput{out.bytes.data(), out.type}};
      sweep(ctx, {program, rows, width, inputs, outputs});
      EXPECT_EQ(out, expected) << describe(ctx) << ' ' << rows << 'x' << width;
    }
  }
}

TEST(Sweep, ReadsAnElementBeforeWritingIt) {
  ExpressionBuilder b;
  const auto x = b.load(0), y = b.load(1);
  b.store(b.mul(x, y), 0);  // overwrites x, which is read again
  b.store(b.add(x, y), 1);
  const Expression program = b.build();
  const Tensor x0 = normal(Scalar::f32, 1, 1041, 1), y0 = normal(Scalar::f32, 1, 1041, 2);
  for (const Context& ctx : contexts()) {
    Tensor a = x0, c = y0;
    const std::array inputs = {input(a), input(c)};
    const std::array outputs = {SweepOutput{a.bytes.data(), a.type}, SweepOutput{c.bytes.data(), c.type}};
    sweep(ctx, {program, 1, 1041, inputs, outputs});
    for (std::int64_t i = 0; i < 1041; ++i) {
      const float p = static_cast<float>(x0.get(0, i)), q = static_cast<float>(y0.get(0, i));
      ASSERT_EQ(a.get(0, i), p * q) << i;
      ASSERT_EQ(c.get(0, i), p + q) << i;
    }
  }
}

/// Each output has its own format and stream. Copies round to nearest from the stored value.
TEST(Sweep, RoundsEveryOutputSeparately) {
  ExpressionBuilder b;
  const auto x = b.load(0);
  b.store(x, 0);
  b.store(x, 1);
  b.store(x, 2);
  const Expression program = b.build();
  const Tensor in = normal(Scalar::f32, 3, 701, 4);
  for (const Context& ctx : contexts()) {
    Tensor weight(Scalar::bf16, 3, 701), copy(Scalar::e5m2, 3, 701), same(Scalar::bf16, 3, 701),
        state(Scalar::bf16, 3, 701), cut(Scalar::f16, 3, 701);
    const std::array copies = {PointwiseOutput{copy.bytes.data(), copy.type},
                               PointwiseOutput{same.bytes.data(), same.type}};
    const std::array inputs = {input(in)};
    const std::array outputs = {
        SweepOutput{weight.bytes.data(), weight.type, Rounding::stochastic, RandomUse::rounding, copies},
        SweepOutput{state.bytes.data(), state.type, Rounding::stochastic, RandomUse::first_moment},
        SweepOutput{cut.bytes.data(), cut.type, Rounding::toward_zero}};
    sweep(ctx, {program, 3, 701, inputs, outputs, Scalar::f32, kKey});
    for (std::int64_t i = 0; i < 3 * 701; ++i) {
      const double value = in.get(i / 701, i % 701);
      const double w = stored(value, Scalar::bf16, Rounding::stochastic, RandomUse::rounding, i);
      ASSERT_EQ(weight.get(i / 701, i % 701), w);
      ASSERT_EQ(copy.get(i / 701, i % 701), round_to(w, Scalar::e5m2));
      ASSERT_EQ(state.get(i / 701, i % 701),
                stored(value, Scalar::bf16, Rounding::stochastic, RandomUse::first_moment, i));
      ASSERT_EQ(cut.get(i / 701, i % 701), round_to(value, Scalar::f16, {Rounding::toward_zero}));
    }
    EXPECT_EQ(same, weight);
  }
}

TEST(Sweep, StoresNothingForAnOutputWithoutMemory) {
  ExpressionBuilder b;
  b.store(b.load(0), 0);
  b.store(b.neg(b.load(0)), 1);
  const Tensor in = normal(Scalar::f32, 1, 100, 5);
  Tensor out(Scalar::f32, 1, 100);
  const std::array inputs = {input(in)};
  const std::array outputs = {SweepOutput{}, SweepOutput{out.bytes.data(), out.type}};
  sweep({.simd = best_simd()}, {b.build(), 1, 100, inputs, outputs});
  for (std::int64_t i = 0; i < 100; ++i) ASSERT_EQ(out.get(0, i), -in.get(0, i));
}

/// Operands of adamw_program(): weight and states in `narrow`, the gradient in `wide`.
struct AdamW {
  AdamW(Scalar weight, Scalar moment, bool compensated, std::int64_t count) {
    const Scalar wide = weight == Scalar::f64 ? Scalar::f64 : Scalar::f32;
    rows.push_back(normal(weight, 1, count, 1));
    rows.push_back(normal(wide, 1, count, 2));
    rows.push_back(normal(moment, 1, count, 3));
    rows.push_back(normal(moment, 1, count, 4));
    for (std::int64_t i = 0; i < count; ++i) rows.back().set(0, i, std::abs(rows.back().get(0, i)));
    if (compensated) rows.push_back(normal(weight, 1, count, 5));
    copy = Tensor(Scalar::e4m3, 1, count);
    arithmetic = wide;
  }
  void run(const Context& ctx, const Expression& program, Rounding rounding) {
    const std::array<double, kAdamWNumbers> numbers = {0.5,  0.9,  1 - 0.9, 0.95, 1 - 0.95,
                                                       1e-3, 1e-4, 0.271,   0.14, 1e-8};
    std::vector<PointwiseInput> inputs;
    for (const Tensor& t : rows) inputs.push_back(input(t));
    for (const double& x : numbers) inputs.push_back({&x, Scalar::f64, Broadcast::everywhere});
    const std::array copies = {PointwiseOutput{copy.bytes.data(), copy.type}};
    std::vector<SweepOutput> outputs;
    for (const std::size_t k : {0U, 2U, 3U, 4U}) {
      if (k < rows.size())
        outputs.push_back({rows[k].bytes.data(), rows[k].type, rounding, static_cast<RandomUse>(k + 5)});
    }
    outputs[0].copies = copies;
    sweep(ctx, {program, 1, rows[0].columns, inputs, outputs, arithmetic, kKey});
  }
  friend bool operator==(const AdamW&, const AdamW&) = default;
  std::vector<Tensor> rows;
  Tensor copy{Scalar::e4m3, 0, 0};
  Scalar arithmetic = Scalar::f32;
};

TEST(Sweep, CompiledAndInterpretedProgramsGiveTheSameBits) {
  for (const bool compensated : {false, true}) {
    Expression interpreted = adamw_program(compensated);
    interpreted.code.push_back({.op = Opcode::constant, .dst = 15});  // makes it a different program
    for (const Scalar weight :
         {Scalar::f64, Scalar::f32, Scalar::tf32, Scalar::bf16, Scalar::f16, Scalar::e4m3}) {
      for (const Scalar moment : {Scalar::f32, Scalar::bf16, Scalar::tf32}) {
        if (weight == Scalar::f64 && moment != Scalar::f32) continue;
        for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic, Rounding::toward_zero}) {
          const AdamW before(weight, moment, compensated, 17041);
          AdamW one = before;
          one.run({.simd = best_simd()}, adamw_program(compensated), rounding);
          EXPECT_FALSE(one == before);
          for (const Context& ctx : contexts()) {
            AdamW other = before;
            other.run(ctx, interpreted, rounding);
            EXPECT_TRUE(other == one) << name(weight) << ' ' << name(moment) << ' ' << compensated << ' '
                                      << static_cast<int>(rounding) << ' ' << describe(ctx);
          }
        }
      }
    }
  }
}

TEST(Sweep, FindsTheFirstElementThatOverflowsItsFormat) {
  ExpressionBuilder b;
  b.store(b.load(0), 0);
  b.store(b.mul(b.load(0), b.load(1)), 1);
  const Expression program = b.build();
  Tensor in(Scalar::f32, 1, 40000);
  for (std::int64_t i = 0; i < 40000; ++i) in.set(0, i, 1);
  for (const std::int64_t i : {20000, 20001, 39999}) in.set(0, i, 230);
  const double two = 2;
  Tensor out(Scalar::e4m3, 1, 40000), first(Scalar::f32, 1, 40000);
  const Tensor before = out;
  const std::array inputs = {input(in), PointwiseInput{&two, Scalar::f64, Broadcast::everywhere}};
  const std::array outputs = {SweepOutput{first.bytes.data(), first.type},
                              SweepOutput{out.bytes.data(), out.type}};
  for (const Context& ctx : contexts()) {
    const Sweep s{program, 1, 40000, inputs, outputs};
    EXPECT_EQ(find_overflow(ctx, s, 0), std::nullopt);
    EXPECT_EQ(find_overflow(ctx, s, 1), std::nullopt) << "460 rounds to 448";
    in.set(0, 20000, 240);
    EXPECT_EQ(find_overflow(ctx, s, 1), (WeightOverflow{20000, 480})) << describe(ctx);
    in.set(0, 20000, 230);
  }
  EXPECT_EQ(out, before);
}

TEST(Lowered, RoundsResultsThatMayNeedMoreBitsThanTheirOperands) {
  const Expression plain = adamw_program(true), rounded = lowered(plain, Scalar::bf16);
  std::size_t roundings = 0;
  for (std::size_t i = 0; i + 1 < rounded.code.size(); ++i) {
    const Instruction &in = rounded.code[i], &next = rounded.code[i + 1];
    const bool computes = in.op != Opcode::load && in.op != Opcode::store && in.op != Opcode::move &&
                          in.op != Opcode::lost && in.op != Opcode::round;
    if (!computes) continue;
    ++roundings;
    EXPECT_TRUE(next.op == Opcode::round && next.dst == in.dst && next.a == in.dst &&
                next.format == Scalar::bf16);
  }
  EXPECT_EQ(roundings + plain.code.size(), rounded.code.size());
}

TEST(Expression, PrintsMovesAndLosses) {
  ExpressionBuilder b;
  const auto w = b.load(0), s = b.sub(b.load(1), b.load(2));
  b.store(b.lost(b.move(w, s, 0), w, s), 1);
  EXPECT_EQ(reference::text_of(b.build()), "t0 = in1 - in2; out0 = in0 + t0; out1 = t0 - (out0 - in0)");
}

}  // namespace
}  // namespace mantissa::kernels::sweep_test
