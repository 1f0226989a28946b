// Divides the elements of a sweep or a reduction into tiles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/kernels/pointwise.h"

namespace mantissa::kernels {

inline constexpr std::size_t kSweepRegisters = 16, kSweepInputs = 16, kSweepOutputs = 4;
/// Bytes per register, so that all registers of a program fit the first-level cache.
inline constexpr std::size_t kSweepTileBytes = 2048;

/// Tiles of at most `step` elements, each within a row of `width`.
struct SweepTiling {
  std::size_t width = 0, step = 0, pieces = 0, tiles = 0;
};

/// Returns the tiles of [rows, width], or of one long row if `joined`.
inline SweepTiling sweep_tiling(std::int64_t rows, std::int64_t width, bool joined, Scalar arithmetic) {
  SweepTiling t;
  const auto count = static_cast<std::size_t>(rows);
  t.width = static_cast<std::size_t>(joined ? rows * width : width);
  t.step = kSweepTileBytes / bytes_of(arithmetic);
  t.pieces = (t.width + t.step - 1) / t.step;
  t.tiles = (joined ? 1 : count) * t.pieces;
  return t;
}

/// Returns true if an operand is broadcast along rows or columns, so tiles must not cross the end of a row.
inline bool goes_by_rows(std::span<const PointwiseInput> inputs) {
  return std::ranges::any_of(inputs, [](const PointwiseInput& in) {
    return in.broadcast == Broadcast::over_rows || in.broadcast == Broadcast::over_columns;
  });
}

}  // namespace mantissa::kernels
