// Prefetches the operands of the next task, a few lines at a time, while the current one computes. A head's
// rows are short and far apart, so the hardware does not prefetch them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/tensor/storage.h"

namespace mantissa::kernels {

class ReadAhead {
 public:
  /// Registers columns [column, column + width) of rows [first, first + rows). At most eight calls.
  void Add(const ConstMatrix& m, std::size_t first, std::size_t rows, std::size_t column, std::size_t width) {
    const std::size_t size = bytes_of(m.type), ld = static_cast<std::size_t>(m.ld);
    const auto* row = static_cast<const std::uint8_t*>(m.data) + (first * ld + column) * size;
    places_[count_++] = {row, ld * size, (width * size + kLine - 1) / kLine, rows};
    lines_ += places_[count_ - 1].lines * rows;
  }

  /// Announces the approximate number of calls of Step().
  void Spread(std::size_t steps) { lines_a_step_ = lines_ / std::max<std::size_t>(steps, 1) + 1; }

  void Step() {
    for (ready_ += lines_a_step_; at_ < count_; ++at_) {
      Place& p = places_[at_];
      for (; p.rows > 0; --p.rows, p.row += p.stride) {
        if (ready_ < p.lines) return;
        ready_ -= p.lines;
        for (std::size_t i = 0; i < p.lines; ++i) __builtin_prefetch(p.row + i * kLine, 0, 2);
      }
    }
  }

 private:
  static constexpr std::size_t kLine = 64;
  struct Place {
    const std::uint8_t* row;
    std::size_t stride, lines, rows;
  };
  std::array<Place, 8> places_{};
  std::size_t count_ = 0, at_ = 0;  // the number of places, and the current one
  std::size_t lines_ = 0, lines_a_step_ = 0, ready_ = 0;
};

}  // namespace mantissa::kernels
