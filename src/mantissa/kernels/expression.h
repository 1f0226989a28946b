// Making expression programs: a builder that assigns registers, and the joining of two programs into one.
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

/// Writes a program value by value; registers are assigned when it is built, and used again once a value is
/// dead. A value that is already there is not computed a second time, one that no output needs not at all:
/// neither changes a bit.
///
///   ExpressionBuilder b;
///   const auto gate = b.load(0);
///   b.store(b.mul(b.mul(gate, b.sigmoid(gate)), b.load(1)), 0);
///   const Expression swiglu = b.build();
class ExpressionBuilder {
 public:
  /// A value of the program, of the builder that returned it.
  struct Reg {
    std::uint32_t id = 0;
  };

  /// `inputs`: how many the program may have.
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
  Reg erf(Reg a) { return unary(Opcode::erf, a); }
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
  /// Stores a + b; returns what is stored.
  Reg move(Reg a, Reg b, std::size_t output);
  /// c − (a − b)
  Reg lost(Reg a, Reg b, Reg c);

  /// Appends the instructions of a program. `inputs[i]` is what its input i is; the result is what its
  /// outputs are.
  std::vector<Reg> append(const Expression& program, std::span<const Reg> inputs);

  /// The program, with as many inputs and outputs as the highest used ones need. Empty where a program's 16
  /// registers, 8 inputs or 4 outputs do not suffice.
  std::optional<Expression> try_build() const;
  /// The same; throws ResourceError where they do not suffice.
  Expression build() const;

 private:
  /// Operands a, b and c of `code` are ids of values here.
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
  std::vector<Value> values_;  // stores are among them
};

/// `program` with the result of every operation rounded to `format`: what an arithmetic of fewer bits makes
/// of it. Numbers that are read, and the operations that `move` and `lost` do at the rounding of a weight,
/// stay as they are; so do those that round nothing.
Expression lowered(const Expression& program, Scalar format);

/// What one input of a consumer is when it is joined to a producer.
struct Wire {
  enum class From : std::uint8_t { own, output, input };
  From from = From::own;  // own: an input that the producer does not have
  std::uint8_t index =
      0;  // of the producer's output that it reads, or of the producer's input that is the same memory
  Scalar format =
      Scalar::f32;  // of the producer's output, as it is stored when the programs run one after the other
};

/// `producer` and then `consumer` as one program. The consumer's input i is what wires[i] says; at a joint
/// the value is rounded to the wire's format, so the bytes are those of the two programs. Inputs: the
/// producer's, then the consumer's own, in order. Outputs: those of the producer for which `kept` is true,
/// then the consumer's. Both programs and the result must be run in the same arithmetic, `arithmetic` (f64
/// where one of their operands is f64, else f32). Empty where a program's 16 registers, 8 inputs or 4 outputs
/// do not suffice.
std::optional<Expression> fuse(const Expression& producer, const std::vector<Wire>& wires,
                               const Expression& consumer, const std::vector<bool>& kept, Scalar arithmetic);

}  // namespace mantissa::kernels
