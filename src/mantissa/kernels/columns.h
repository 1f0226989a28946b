// Copies of column blocks between matrices, which split a tensor along its features or join several tensors.
#pragma once

#include <cstdint>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// Returns the matrix that starts at column `first` of `m`, with the same row stride.
ConstMatrix columns_from(ConstMatrix m, std::int64_t first);
Matrix columns_from(Matrix m, std::int64_t first);

/// to[i, j] = from[i, j] for i < rows, j < width: byte for byte if the formats are equal, else converted
/// exactly or rounded once. `from` and `to` must not overlap.
void copy_columns(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to);

/// to[i, j] = +0 for i < rows, j < width.
void zero_columns(const Context& ctx, std::int64_t rows, std::int64_t width, Matrix to);

}  // namespace mantissa::kernels
