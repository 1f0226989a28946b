// Tensors in blocks that share a scale: along the last axis, from the first element of each row on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mantissa/numeric/format.h"
#include "mantissa/numeric/scaled.h"
#include "mantissa/numeric/simd_target.h"

namespace mantissa::convert {

/// What values in blocks of `f` are stored in: bf16; of nvfp4, whose tensors have a scale in f32, f32.
Scalar stored_as(BlockFormat f);

/// Elements along the last axis; 1 of a scalar, and where there are none.
std::uint64_t row_length(const std::vector<std::int64_t>& shape);

/// Elements of the piece that begins at element `first`, which begins a row or a piece: as many whole rows as
/// `most` elements hold, or a row's part that blocks do not straddle. `most` is a multiple of all blocks.
std::uint64_t block_piece(std::uint64_t row, std::uint64_t first, std::uint64_t most);

/// values[0, n), a piece that begins at element `first` of a tensor with rows of `row`, as the elements times
/// scales that they become, the scale of the tensor included.
void round_in_blocks(BlockFormat f, float* values, std::size_t n, std::uint64_t row, std::uint64_t first,
                     float tensor_scale, SimdTarget target);

/// Values on their way into blocks, in f32. Those in f64 are rounded to odd, toward zero with the last bit
/// set where something was cut off, so that blocks of powers of two round as if from f64; what is beyond f32
/// is inf.
void to_blocks(const float* values, std::size_t n, float* out);
void to_blocks(const double* values, std::size_t n, float* out);

}  // namespace mantissa::convert
