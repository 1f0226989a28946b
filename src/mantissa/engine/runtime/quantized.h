// Weights that a set has in quantized blocks, as elements: for reports, which read single weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mantissa/core/tensor/layout.h"
#include "mantissa/kernels/context.h"

namespace mantissa::runtime {

/// Returns the elements of a matrix [rows, width] in quantized blocks, rounded to `type` and stored in it.
std::vector<std::byte> quantized_elements(const kernels::Context& ctx, const void* blocks,
                                          const QuantizedMatrix& quants, Scalar type, std::int64_t rows,
                                          std::int64_t width);

}  // namespace mantissa::runtime
