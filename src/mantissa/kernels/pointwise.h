// Pointwise chains as one kernel: a small expression program run tile by tile in cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mantissa/kernels/context.h"
#include "mantissa/numeric/format.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels {

/// Instructions of an expression program. Each works on registers that hold a tile in f32 (f64 in f64
/// arithmetic).
enum class Opcode : std::uint8_t {
  load,      // dst = input[index], converted exactly
  constant,  // dst = value
  add,       // dst = a + b
  sub,       // dst = a − b
  mul,       // dst = a · b
  div,       // dst = a / b
  fma,       // dst = a · b + c, rounded once
  neg,       // dst = −a
  exp,       // dst = e^a
  log,       // dst = the natural logarithm of a
  tanh,      // dst = tanh a
  erf,       // dst = erf a
  sigmoid,   // dst = 1 / (1 + e^−a)
  rsqrt,     // dst = 1 / √a: the root is rounded, then the quotient
  relu,      // dst = +0 where a ≤ 0, else a (so nan stays)
  sqrt,      // dst = √a
  abs,       // dst = |a|
  sign,      // dst = ±1 with the sign of a; a where a is zero or nan
  max,       // dst = b where a < b, else a (so a nan in a stays)
  min,       // dst = b where b < a, else a (so a nan in a stays)
  round,     // dst = a rounded to nearest to `format`: a rounding point of the graph
  store,     // output[index] = a, rounded to the output's type
  // Only in sweeps (sweep.h), for weights that keep what rounding loses (Kahan, 1965):
  move,  // output[index] = a + b, rounded to the output's type; dst = what is stored
  lost,  // dst = c − (a − b)
};

struct Instruction {
  Opcode op = Opcode::load;
  std::uint8_t dst = 0, a = 0, b = 0, c = 0;  // registers
  std::uint8_t index = 0;                     // input or output
  Scalar format = Scalar::f32;
  double value = 0;
};

/// How an input is indexed by the elements [rows, width] of the outputs.
enum class Broadcast : std::uint8_t {
  none,
  over_rows,     // the input is [width], the same for every row
  over_columns,  // the input is [rows], one number for all of a row (sweeps only)
  everywhere,    // the input is one number (sweeps only)
};

/// A program is a value: instructions in order, registers assigned by first use. At most 16 registers, 8
/// inputs (16 in sweeps), 4 outputs.
struct Expression {
  std::vector<Instruction> code;
  std::uint8_t inputs = 0;
  std::uint8_t outputs = 0;

  /// "out0 = round<bf16>(in0 * sigmoid(in0) * in1)"; for explain.
  std::string str() const;
  friend bool operator==(const Expression&, const Expression&);
};

struct PointwiseInput {
  const void* data = nullptr;
  Scalar type = Scalar::f32;
  Broadcast broadcast = Broadcast::none;
};
struct PointwiseOutput {
  void* data = nullptr;
  Scalar type = Scalar::f32;
};

/// Runs `program` over [rows, width] contiguous elements. An output may be the same memory as an unbroadcast
/// input of the same type: an element's inputs are read before any of its outputs is written, wherever the
/// program's stores stand. Arithmetic is f64 where any input or output is f64. Transcendentals:
/// numeric/math-inl.h (their ulp error is stated there).
void pointwise(const Context& ctx, const Expression& program, std::int64_t rows, std::int64_t width,
               std::span<const PointwiseInput> inputs, std::span<const PointwiseOutput> outputs);

}  // namespace mantissa::kernels
