// Tensors in blocks with a shared scale. Blocks run along the last axis and start at the first element of
// each row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/core/numeric/simd_target.h"

namespace mantissa::convert {

/// Elements that a thread converts at a time, and those of them that are in the cache at once.
inline constexpr std::uint64_t kPiece = std::uint64_t{1} << 18;
inline constexpr std::uint64_t kRow = std::uint64_t{1} << 12;

/// Returns the format that stores values in blocks of `f`: bf16, or f32 for nvfp4, whose tensors have an f32
/// scale.
Scalar stored_as(BlockFormat f);

/// Returns the number of elements along the last axis; 1 for a scalar or an empty axis.
std::uint64_t row_length(const std::vector<std::int64_t>& shape);

/// Returns the size of the piece that starts at element `first`, the start of a row or of a piece: as many
/// whole rows as fit into `most` elements, or a part of a row that ends at a block boundary. `most` is a
/// multiple of all block sizes.
std::uint64_t block_piece(std::uint64_t row, std::uint64_t first, std::uint64_t most);

/// Rounds values[0, n), a piece that starts at element `first` of a tensor with rows of `row`, to elements
/// times scales, including the tensor's scale.
void round_in_blocks(BlockFormat f, float* values, std::size_t n, std::uint64_t row, std::uint64_t first,
                     float tensor_scale, SimdTarget target);

/// Converts values to f32 before rounding to blocks. f64 values are rounded to odd (toward zero, with the
/// last bit set if anything was cut off), so that blocks with power-of-two scales round as if from f64.
/// Values beyond f32 become inf.
void to_blocks(const float* values, std::size_t n, float* out);
void to_blocks(const double* values, std::size_t n, float* out);

}  // namespace mantissa::convert
