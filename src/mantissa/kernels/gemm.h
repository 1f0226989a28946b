// Matrix product with operands in any storage format, converted and rounded during packing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "mantissa/core/numeric/factor.h"
#include "mantissa/core/numeric/quants.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/layout.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/loss_count.h"

namespace mantissa::kernels {

/// One operand. Element (i, j) is data[i * ld + j], or data[j * ld + i] if `transposed`. It is read in
/// `matrix.type`, rounded by `operand`, and multiplied. Both operands must have the same number of parts.
///
/// With `blocks`, matrix.data holds packed elements in rows of matrix.ld, and `scales` their scales
/// (core/tensor/layout.h). They are decoded to f32, multiplied by `unscale`, and rounded by `operand` unless
/// its format is matrix.type or has more bits. Requires f32 arithmetic and operands in one part.
///
/// With `quants`, matrix.data holds rows of quantized blocks (core/numeric/quants.h), matrix.ld elements
/// each, and `scales` the scales of a format whose scales lie apart. The blocks are dequantized to f32,
/// rounded to nearest in matrix.type, and read on like values stored in that format. Requires f32 arithmetic.
///
/// `interleaved`, for B, is the same matrix again as interleave() writes it (kernels/interleave.h), or null.
/// Products of few rows read it instead of matrix.data where elements are multiplied as they are stored.
struct GemmOperand {
  ConstMatrix matrix;
  Factor operand = Scalar::f32;
  bool transposed = false;
  /// Multiplies the stored values first, in f32 (core/numeric/scaled.h); in tile order the leaf's sum
  /// instead.
  float unscale = 1;
  std::optional<Blocks> blocks = {};
  const void* scales = nullptr;
  std::optional<QuantFormat> quants = {};
  const std::byte* interleaved = nullptr;
};

/// C[m, n] = Σ_k A[m, k] · B[k, n], in f32 (f64 if both operands' `operand` and C are f64).
///
/// The order of summation is the same for every m and n, thread count and instruction set. k splits into
/// leaves (one leaf if `rows` is empty), a leaf into rows, and a row into blocks of 256 from its start. A
/// block is one FMA chain from zero in ascending k. Blocks are added in order to the leaf's sum, and the
/// leaf's sum is added to C.
///
/// In tile order (SumOrder::tile; f32 arithmetic) a row splits into blocks of 32 from its start. A
/// block is one FMA chain from zero over its even and one over its odd terms, in ascending k; the sum of the
/// two is added to the leaf's sum, which starts at +0. This is the order of AMX's TDPBF16PS. `unscale` of the
/// operands then multiplies the leaf's sum, A's first (B's with `swap_parts`), and not the factors.
///
/// In the order of a card (SumOrder::card) terms are numbered from the start of a row. The leaf's sum is the
/// card's accumulator: from +0 on, the groups of each row are added to it (core/numeric/card_sum.h).
/// `unscale` multiplies the leaf's sum, as in tile order. The operands have one part and formats that the
/// card multiplies.
///
/// With operands in several parts, each product of parts of a block is a chain of its own. In tile order each
/// product of parts of a row has a sum of its own, which starts at +0 and to which its blocks are added; at
/// the row's end these sums are added up, and the total is added to the leaf's sum. In both orders the
/// products with the smallest terms come first; among equals, those with A's smaller part (B's with
/// `swap_parts`).
///
/// With an accumulator that rounds, blocks also end wherever it rounds the leaf's sum, and the leaf's sum
/// rounds after each such block is added. Separate sums of products of parts are then added wherever it
/// rounds as well, and start again at +0.
struct Gemm {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  GemmOperand a;
  GemmOperand b;
  Matrix c;
  /// false: C = product. true: C = C + product, leaf by leaf; C must be f32 (f64 in f64 arithmetic) without
  /// an epilogue.
  bool accumulate = false;
  /// true: blocks are added directly to C instead of to a leaf's sum, which continues the blocks of an
  /// earlier call (the head's gradient over vocabulary chunks). With operands in several parts in tile order,
  /// each call is a row of its own. Requires `accumulate` and empty `rows`.
  bool continue_blocks = false;
  /// The rows of k for weight gradients, where k is the token axis. Empty: one row of length k.
  std::span<const Row> rows;
  std::int64_t rows_per_leaf = 1;
  Accumulator accumulator = {};  // in f64 arithmetic f32 does not round either
  /// true: products of parts are added, and scales multiply, in the order of the transposed product
  /// Cᵀ = Bᵀ·Aᵀ, so C has its bits.
  bool swap_parts = false;

  // Epilogue, per element: x = acc (+ bias[n]); rounded to `rounded`; (+ addend[m, n], in f32); rounded to
  // c.type.
  const void* bias = nullptr;  // [n]
  Scalar bias_type = Scalar::f32;
  Scalar rounded = Scalar::f32;    // f32: no rounding; f64 arithmetic never rounds here
  ConstMatrix addend;              // data == nullptr: none. May be C itself if the types are equal.
  RangeCounter* losses = nullptr;  // if set, counts what the last rounding loses
};

/// Returns the scratch size of gemm() with `ctx.threads` threads and operands in `parts` parts. Smaller m, n
/// and k never need more.
std::size_t gemm_workspace(const Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k,
                           Scalar arithmetic, int parts = 1);

void gemm(const Context& ctx, const Gemm& g);

/// Runs products that do not read each other's results, with the bits of gemm(). Those of few rows share one
/// loop over the threads if ctx.workspace_bytes suffice for the rows of all A.
void gemm_together(const Context& ctx, std::span<const Gemm> products);

}  // namespace mantissa::kernels
