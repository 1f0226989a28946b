// Prefetches a row that a kernel of many operands reads soon: so many streams are more than the hardware
// follows. All of it is inlined always, because GCC deletes calls of functions that only prefetch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/core/tensor/storage.h"

namespace mantissa::kernels {

/// Tokens between prefetching and reading.
inline constexpr std::size_t kTokensAhead = 2;

inline constexpr std::size_t kCacheLine = 64;

/// Returns the memory of a row from `column` on.
inline const std::byte* row_memory(const ConstMatrix& m, std::size_t row, std::size_t column) {
  return static_cast<const std::byte*>(m.data) +
         (row * static_cast<std::size_t>(m.ld) + column) * bytes_of(m.type);
}

/// Prefetches columns [column, column + width) of row `row`, which must exist, to be written if `kWrite`.
template <bool kWrite = false>
[[gnu::always_inline]] inline void prefetch_row(const ConstMatrix& m, std::size_t row, std::size_t column,
                                                std::size_t width) {
  const std::byte* const begin = row_memory(m, row, column);
  for (std::size_t i = 0; i < width * bytes_of(m.type); i += kCacheLine)
    __builtin_prefetch(begin + i, kWrite ? 1 : 0, 3);
}

/// The same for a row to write: stores are written in order, so one that waits for memory delays all others.
[[gnu::always_inline]] inline void prefetch_row(const Matrix& m, std::size_t row, std::size_t column,
                                                std::size_t width) {
  prefetch_row<true>(ConstMatrix(m), row, column, width);
}

/// Lines to prefetch one by one: a kernel that asks for dozens at once waits until the first ones have come.
class LinesAhead {
 public:
  /// Adds columns [column, column + width) of a row. Lines beyond kMost are left out.
  void add(const ConstMatrix& m, std::size_t row, std::size_t column, std::size_t width) {
    const std::byte* const begin = row_memory(m, row, column);
    for (std::size_t i = 0; i < width * bytes_of(m.type) && end_ < kMost; i += kCacheLine)
      lines_[end_++] = begin + i;
  }
  std::size_t count() const { return end_; }
  /// Prefetches the next `n` lines.
  [[gnu::always_inline]] void prefetch(std::size_t n) {
    for (const std::size_t end = std::min(next_ + n, end_); next_ < end; ++next_)
      __builtin_prefetch(lines_[next_], 0, 3);
  }

 private:
  static constexpr std::size_t kMost = 64;
  std::size_t next_ = 0, end_ = 0;
  const std::byte* lines_[kMost];
};

/// Prefetches the rows of a head and token that the recurrence reads in both of its passes.
template <class Call>
[[gnu::always_inline]] inline void prefetch_head(const Call& c, std::size_t token, std::size_t head) {
  const auto keys = static_cast<std::size_t>(c.shape.key_dim);
  for (const ConstMatrix* m : {&c.r, &c.k, &c.alpha, &c.beta}) prefetch_row(*m, token, head * keys, keys);
  const std::size_t decays = c.head_decay ? 1 : keys;
  prefetch_row(c.decay, token, head * decays, decays);
  const auto values = static_cast<std::size_t>(c.shape.value_dim);
  prefetch_row(c.v, token, head * values, values);
}

}  // namespace mantissa::kernels
