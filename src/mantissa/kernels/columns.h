// Blocks of columns copied between matrices: what splits a tensor along its features, and joins several.
#pragma once

#include <cstdint>

#include "mantissa/kernels/context.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels {

/// The matrix that begins at column `first` of `m`; its rows lie as far apart.
ConstMatrix columns_from(ConstMatrix m, std::int64_t first);
Matrix columns_from(Matrix m, std::int64_t first);

/// to[i, j] = from[i, j] for i < rows, j < width: byte for byte where both have one format, else converted
/// exactly or rounded once. `from` and `to` may not overlap.
void copy_columns(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to);

/// to[i, j] = +0 for i < rows, j < width.
void zero_columns(const Context& ctx, std::int64_t rows, std::int64_t width, Matrix to);

}  // namespace mantissa::kernels
