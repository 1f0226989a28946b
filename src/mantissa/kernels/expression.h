// Builds expression programs: a builder that assigns registers, and a function that fuses two programs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mantissa/kernels/pointwise.h"

namespace mantissa::kernels {

inline constexpr std::size_t kMaxRegisters = 16;
inline constexpr std::size_t kMaxInputs = 8, kMaxSweepInputs = 16;
inline constexpr std::size_t kMaxOutputs = 4;

/// Builds a program value by value. build() assigns registers and reuses those of dead values. Common
/// subexpressions are computed once and unused values not at all; neither changes a bit.
///
///   ExpressionBuilder b;
///   const auto gate = b.load(0);
///   b.store(b.mul(b.mul(gate, b.sigmoid(gate)), b.load(1)), 0);
///   const Expression swiglu = b.build();
class ExpressionBuilder {
 public:
  /// A value of the program; valid only for the builder that returned it.
  struct Reg {
    std::uint32_t id = 0;
  };

  /// `inputs`: the maximum number of inputs of the program.
  explicit ExpressionBuilder(std::size_t inputs = kMaxInputs) : max_inputs_(inputs) {}

  Reg load(std::size_t input);
  Reg constant(double value);
  Reg add(Reg a, Reg b) { return binary(Opcode::add, a, b); }
  Reg sub(Reg a, Reg b) { return binary(Opcode::sub, a, b); }
  Reg mul(Reg a, Reg b) { return binary(Opcode::mul, a, b); }
  Reg div(Reg a, Reg b) { return binary(Opcode::div, a, b); }
  Reg fma(Reg a, Reg b, Reg c);  // a · b + c
  Reg neg(Reg a) { return unary(Opcode::neg, a); }
  Reg exp(Reg a) { return unary(Opcode::exp, a); }
  Reg log(Reg a) { return unary(Opcode::log, a); }
  Reg tanh(Reg a) { return unary(Opcode::tanh, a); }
  Reg normal_cdf(Reg a) { return unary(Opcode::normal_cdf, a); }
  Reg sigmoid(Reg a) { return unary(Opcode::sigmoid, a); }
  Reg rsqrt(Reg a) { return unary(Opcode::rsqrt, a); }
  Reg relu(Reg a) { return unary(Opcode::relu, a); }
  Reg sqrt(Reg a) { return unary(Opcode::sqrt, a); }
  Reg abs(Reg a) { return unary(Opcode::abs, a); }
  Reg sign(Reg a) { return unary(Opcode::sign, a); }
  Reg max(Reg a, Reg b) { return binary(Opcode::max, a, b); }
  Reg min(Reg a, Reg b) { return binary(Opcode::min, a, b); }
  Reg round(Reg a, Scalar format);
  void store(Reg a, std::size_t output);
  /// Stores a + b and returns the stored value.
  Reg move(Reg a, Reg b, std::size_t output);
  /// Returns c − (a − b).
  Reg lost(Reg a, Reg b, Reg c);

  /// Appends the instructions of a program. `inputs[i]` replaces its input i. Returns the values of its
  /// outputs.
  std::vector<Reg> append(const Expression& program, std::span<const Reg> inputs);

  /// Returns the program, with as many inputs and outputs as the highest used indices need, or null if it
  /// needs more than 16 registers, 8 inputs or 4 outputs.
  std::optional<Expression> try_build() const;
  /// Like try_build(), but throws ResourceError instead of returning null.
  Expression build() const;

 private:
  /// An instruction whose operands a, b and c are ids of values of this builder.
  struct Value {
    Opcode op = Opcode::load;
    Scalar format = Scalar::f32;
    std::uint32_t a = kNone, b = kNone, c = kNone;
    std::size_t index = 0;
    double value = 0;
  };
  static constexpr std::uint32_t kNone = 0xffffffffU;
  struct Allocation;

  Reg unary(Opcode op, Reg a) { return add_value({.op = op, .a = a.id}); }
  Reg binary(Opcode op, Reg a, Reg b) { return add_value({.op = op, .a = a.id, .b = b.id}); }
  Reg add_value(const Value& v);
  std::vector<std::uint32_t> schedule() const;

  std::size_t max_inputs_;
  std::vector<Value> values_;  // including stores
};

/// `program` with the result of every operation rounded to `format`, as by an arithmetic of fewer bits.
/// Loaded values and the operations of `move` and `lost` do not round to it, nor do operations that never
/// round.
Expression lowered(const Expression& program, Scalar format);

/// `program` without its roundings.
Expression unrounded(const Expression& program);

/// Returns true if a result of `program` is rounded before another operation reads it.
bool rounds_inside(const Expression& program);

/// Returns the format with the fewest bits that `program` rounds to inside; f64 if it rounds nothing.
Scalar least_rounding(const Expression& program);

/// The source of one input of a consumer that is fused with a producer.
struct Wire {
  enum class From : std::uint8_t { own, output, input };
  From from = From::own;  // own: an input that the producer lacks
  // of the producer's output to read, or of the producer's input with the same memory
  std::uint8_t index = 0;
  Scalar format =
      Scalar::f32;  // the storage format of the producer's output when the programs run separately
};

/// Fuses `producer` and then `consumer` into one program. wires[i] is the source of the consumer's input i. A
/// value passed between them rounds to the wire's format, so the bytes equal those of the two programs.
/// Inputs: the producer's, then the consumer's own, in order. Outputs: the producer's outputs with `kept`
/// set, then the consumer's. Both programs and the result must run in the same arithmetic, `arithmetic` (f64
/// if any operand is f64, else f32). Returns null if 16 registers, 8 inputs or 4 outputs do not suffice.
std::optional<Expression> fuse(const Expression& producer, const std::vector<Wire>& wires,
                               const Expression& consumer, const std::vector<bool>& kept, Scalar arithmetic);

}  // namespace mantissa::kernels
