// The pieces in which rows are processed, so that buffers between passes stay in the first-level cache.
#pragma once

#include <cstddef>

namespace mantissa::kernels {

/// Elements of a row that are processed at a time. A multiple of every block of a format, and of the 16
/// virtual lanes, so that the lane of an element does not depend on the piece.
inline constexpr std::size_t kPiece = 1024;
/// The same for norms, whose passes go over a row several times.
inline constexpr std::size_t kLongPiece = 2048;
/// Columns that are processed at a time for blocks along columns. Even, so that pieces start at a byte.
inline constexpr std::size_t kColumnPiece = 128;

}  // namespace mantissa::kernels
