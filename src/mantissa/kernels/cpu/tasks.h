// Distribution of rows to threads, in tasks large enough to make the distribution cheap.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// Elements per task of a kernel with little work per element: about 10 µs.
inline constexpr std::int64_t kTaskElements = 16384;

/// Calls body(begin, end) for ranges that cover [0, rows), each of about kTaskElements elements and at least
/// one row. `width` is the number of elements of a row.
template <class Body>
void for_row_ranges(const Context& ctx, std::int64_t rows, std::int64_t width, const Body& body) {
  const std::int64_t per_task = std::max<std::int64_t>(1, kTaskElements / std::max<std::int64_t>(1, width));
  parallel_for(ctx, (rows + per_task - 1) / per_task, [&](std::int64_t task, int) {
    const std::int64_t begin = task * per_task;
    body(static_cast<std::size_t>(begin), static_cast<std::size_t>(std::min(rows, begin + per_task)));
  });
}

/// The division of [0, count) into pieces for threads that read neighbouring indices one after the other.
struct Pieces {
  std::int64_t count = 0;
  std::int64_t align = 1;  // the ranges of threads begin at multiples of it
  std::int64_t unit = 1;   // the least piece, and a divisor of every piece that does not end a range
  std::int64_t most = 1;   // the largest piece, a multiple of `unit`

  /// Returns where the range of a thread begins.
  std::int64_t begin_of(std::int64_t threads, std::int64_t thread) const {
    return thread == threads ? count : count * thread / threads / align * align;
  }
};

/// Indices [first, last) for one thread, which continues with those up to `followed_to`, unless others take
/// them.
struct Piece {
  std::int64_t first = 0, last = 0, followed_to = 0;
};

/// Calls body(piece, thread) for all pieces. Each thread takes the pieces of its own range in ascending
/// order, so that it can prefetch the next one, and then those that others have left. The pieces at the end
/// of a range are small, because threads that end at different times wait for each other.
template <class Body>
void for_each_piece(const Context& ctx, const Pieces& pieces, const Body& body) {
  struct alignas(64) Range {  // on a line of its own
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };
  const std::int64_t threads = std::max(ctx.threads, 1);
  std::vector<Range> ranges(static_cast<std::size_t>(threads));
  for (std::int64_t t = 0; t < threads; ++t) {
    ranges[static_cast<std::size_t>(t)].next = pieces.begin_of(threads, t);
    ranges[static_cast<std::size_t>(t)].end = pieces.begin_of(threads, t + 1);
  }
  const auto take_all = [&](Range& range, bool own, int thread) {
    for (;;) {
      const std::int64_t half = (range.end - range.next.load(std::memory_order_relaxed)) / 2;
      const std::int64_t size = std::clamp(half / pieces.unit * pieces.unit, pieces.unit, pieces.most);
      const std::int64_t first = range.next.fetch_add(size, std::memory_order_relaxed);
      if (first >= range.end) return;
      const std::int64_t last = std::min(first + size, range.end);
      body(Piece{first, last, own ? range.end : last}, thread);
    }
  };
  parallel_for(ctx, threads, [&](std::int64_t /*index*/, int thread) {
    for (std::int64_t t = 0; t < threads; ++t)
      take_all(ranges[static_cast<std::size_t>((thread + t) % threads)], t == 0, thread);
  });
}

/// Most columns per task of a sum over tokens, so that its chain and sums stay in the first-level cache.
/// Wide, because narrow columns of a matrix are slow to read.
inline constexpr std::int64_t kSumColumns = 1024;

/// Calls body(first, count) for ranges that cover [0, columns), each of at most kSumColumns columns and a
/// whole number of cache lines, and narrow enough to give every thread a range if there are enough columns.
/// `elements` is the number of elements of a column.
template <class Body>
void for_column_ranges(const Context& ctx, std::int64_t columns, std::int64_t elements, const Body& body) {
  const std::int64_t share = (columns + ctx.threads - 1) / ctx.threads;
  const std::int64_t width = std::min(kSumColumns, (share + 15) / 16 * 16);
  for_row_ranges(
      ctx, (columns + width - 1) / width, width * elements, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
          const std::int64_t first = static_cast<std::int64_t>(i) * width;
          body(static_cast<std::size_t>(first), static_cast<std::size_t>(std::min(width, columns - first)));
        }
      });
}

}  // namespace mantissa::kernels
