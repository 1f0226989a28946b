// Quantization of whole matrices to int8 and nf4 (core/numeric/quantize_rows.h), on all threads.
#pragma once

#include <span>

#include "mantissa/core/numeric/error_stats.h"
#include "mantissa/core/numeric/quantize_rows.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// Quantizes `values` [to.rows, to.width], or [to.width, to.rows] if `transposed`, which are finite. The
/// bytes depend on neither threads nor the instruction set. Returns the errors of the dequantized values.
ErrorStats quantize_matrix(const Context& ctx, const QuantMatrix& to, std::span<const float> values,
                           bool transposed);

}  // namespace mantissa::kernels
