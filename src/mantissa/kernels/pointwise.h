// Chains of pointwise operations as one kernel: a small expression program that runs tile by tile in cache.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/state_format.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// Instructions of an expression program. Registers hold a tile in f32 (f64 in f64 arithmetic).
enum class Opcode : std::uint8_t {
  load,        // dst = input[index], converted exactly
  constant,    // dst = value
  add,         // dst = a + b
  sub,         // dst = a − b
  mul,         // dst = a · b
  div,         // dst = a / b
  fma,         // dst = a · b + c, rounded once
  neg,         // dst = −a
  exp,         // dst = e^a
  log,         // dst = the natural logarithm of a
  tanh,        // dst = tanh a
  normal_cdf,  // dst = Φ(a) = ½·erfc(−a/√2)
  sigmoid,     // dst = 1 / (1 + e^−a)
  rsqrt,       // dst = 1 / √a: the root is rounded, then the quotient
  relu,        // dst = +0 where a ≤ 0, else a (keeps NaN)
  sqrt,        // dst = √a
  abs,         // dst = |a|
  sign,        // dst = ±1 with the sign of a; a if a is zero or NaN
  max,         // dst = b where a < b, else a (keeps a NaN in a)
  min,         // dst = b where b < a, else a (keeps a NaN in a)
  round,       // dst = a rounded to nearest to `format`: a rounding point of the graph
  store,       // output[index] = a, rounded to the output's type
  // Only in sweeps (sweep.h), for weights that accumulate their rounding errors (Kahan, 1965):
  move,  // output[index] = a + b, rounded to the output's type; dst = the stored value
  lost,  // dst = c − (a − b)
};

struct Instruction {
  Opcode op = Opcode::load;
  std::uint8_t dst = 0, a = 0, b = 0, c = 0;  // registers
  std::uint8_t index = 0;                     // input or output
  Scalar format = Scalar::f32;
  double value = 0;
};

/// How an input is indexed for the elements [rows, width] of the outputs.
enum class Broadcast : std::uint8_t {
  none,
  over_rows,     // the input is [width], the same for every row
  over_columns,  // the input is [rows], one number per row (sweeps only)
  everywhere,    // the input is one number (sweeps only)
};

/// A program as a value: instructions in order, with assigned registers. At most 16 registers, 8 inputs (16
/// in sweeps), 4 outputs.
struct Expression {
  std::vector<Instruction> code;
  std::uint8_t inputs = 0;
  std::uint8_t outputs = 0;

  friend bool operator==(const Expression&, const Expression&);
};

struct PointwiseInput {
  const void* data = nullptr;
  Scalar type = Scalar::f32;
  Broadcast broadcast = Broadcast::none;
  std::int64_t stride = 0;              // elements between the starts of rows; 0: the width. Not in sweeps
  StateCodes codes = StateCodes::none;  // `data` is a state in blocks, read as f32 (sweeps only)
};
struct PointwiseOutput {
  void* data = nullptr;
  Scalar type = Scalar::f32;
  std::int64_t stride = 0;
};

/// Runs `program` over [rows, width] elements. An output may share the memory of an unbroadcast
/// input of the same type: all inputs of an element are read before any of its outputs is written. Arithmetic
/// is f64 if any input or output is f64. core/numeric/math-inl.h states the ulp errors of transcendental
/// functions.
void pointwise(const Context& ctx, const Expression& program, std::int64_t rows, std::int64_t width,
               std::span<const PointwiseInput> inputs, std::span<const PointwiseOutput> outputs);

}  // namespace mantissa::kernels
