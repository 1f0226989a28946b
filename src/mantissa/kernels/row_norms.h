// The norms of an adapted weight's rows, which DoRA divides by (Liu et al., arXiv 2402.09353).
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/core/tensor/layout.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// norms[o] = ‖W[o] + scale·B[o]·A‖₂. W: [out, in], or [in, out] if `transposed`; A: [rank, in]; B: [out,
/// rank], dense; norms: [out], f32 (f64). All in f32 (f64 if norms are f64): an FMA chain over the rank for
/// each element, from W on, with scale·B (scale·A if transposed) rounded first. Squares are summed over 16
/// virtual lanes, an FMA chain in each; if transposed, as one FMA chain per block of 256 inputs, and the
/// blocks in order. The norm of a row of zeros is the smallest normal number, so that quotients are finite.
/// With `quants`, weight.data holds W in quantized blocks whose rows are the outputs, and weight.type is the
/// format to which their values are rounded. Such norms are f32.
struct RowNorms {
  std::int64_t out = 0, in = 0, rank = 0;
  double scale = 1;
  bool transposed = false;
  ConstMatrix weight, a, b;
  std::optional<QuantizedMatrix> quants = {};
  Matrix norms;
};
void row_norms(const Context& ctx, const RowNorms& n);

}  // namespace mantissa::kernels
