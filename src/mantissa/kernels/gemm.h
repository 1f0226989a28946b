// Matrix product with operands of any storage format, converted and rounded while they are packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/kernels/context.h"
#include "mantissa/numeric/factor.h"
#include "mantissa/tensor/extent.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels {

/// One operand. Element (i, j) is data[i * ld + j], or data[j * ld + i] where `transposed`. It is read in
/// `matrix.type`, rounded as `operand` says, and multiplied. Both operands have the same number of parts.
struct GemmOperand {
  ConstMatrix matrix;
  Factor operand = Scalar::f32;
  bool transposed = false;
  float unscale = 1;  // what stored values are multiplied by first, in f32 (numeric/scaled.h)
};

/// C[m, n] = Σ_k A[m, k] · B[k, n], in f32 (f64 where both operands' `operand` and C are f64).
///
/// Order of summation, the same for every shape of m and n, thread count and instruction set: k is cut into
/// leaves (the whole of k where `leaves` is empty), a leaf into rows, a row into blocks of 256 from its
/// start; a block is one FMA chain from zero in ascending k; blocks are added in order into the leaf's sum,
/// the leaf's sum is added to C. Operands in several parts: each product of parts of a block is a chain of
/// its own; those of the smallest terms are added first, among equals those of A's smaller part (of B's where
/// `swap_parts`). An
/// accumulator that rounds also ends blocks where it rounds the leaf's sum, and rounds that after adding
/// them.
struct Gemm {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  GemmOperand a;
  GemmOperand b;
  Matrix c;
  /// false: C = product. true: C = C + product, leaf by leaf (C must be f32, or f64 in f64 arithmetic, and
  /// have no epilogue).
  bool accumulate = false;
  /// true: blocks are added to C one after the other instead of into a leaf's sum first, which continues a
  /// chain of blocks that an earlier call began (the head's gradient over vocabulary chunks). Needs
  /// `accumulate`, and no `rows`.
  bool continue_blocks = false;
  /// The rows of k, for weight gradients: k is the token axis. Empty: one row of length k.
  std::span<const Row> rows;
  std::int64_t rows_per_leaf = 1;
  Accumulator accumulator = {};  // f32 in f64 arithmetic is no rounding either
  /// true: products of parts are added in the order of the transposed product Cᵀ = Bᵀ·Aᵀ, whose bits C has.
  bool swap_parts = false;

  // Epilogue, per element: x = acc (+ bias[n]); rounded to `rounded`; (+ addend[m, n], in f32); rounded to
  // c.type.
  const void* bias = nullptr;  // [n]
  Scalar bias_type = Scalar::f32;
  Scalar rounded = Scalar::f32;  // f32: no rounding (f64 arithmetic is never rounded here)
  ConstMatrix addend;            // data == nullptr: none. May be C itself where the types are equal.
};

/// Scratch that gemm() needs with `ctx.threads` threads and operands in `parts` parts; never more for smaller
/// m, n, k.
std::size_t gemm_workspace(const Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k,
                           Scalar arithmetic, int parts = 1);

void gemm(const Context& ctx, const Gemm& g);

}  // namespace mantissa::kernels
