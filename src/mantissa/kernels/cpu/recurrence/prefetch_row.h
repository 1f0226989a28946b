// Prefetches a row that a kernel of many operands reads soon: so many streams are more than the hardware
// follows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/tensor/storage.h"

namespace mantissa::kernels {

/// Tokens between prefetching and reading.
inline constexpr std::size_t kTokensAhead = 2;

/// Prefetches columns [column, column + width) of row `row`, which must exist.
inline void prefetch_row(const ConstMatrix& m, std::size_t row, std::size_t column, std::size_t width) {
  constexpr std::size_t kLine = 64;
  const std::size_t size = bytes_of(m.type);
  const auto* const begin =
      static_cast<const std::uint8_t*>(m.data) + (row * static_cast<std::size_t>(m.ld) + column) * size;
  for (std::size_t i = 0; i < width * size; i += kLine) __builtin_prefetch(begin + i, 0, 3);
}

}  // namespace mantissa::kernels
