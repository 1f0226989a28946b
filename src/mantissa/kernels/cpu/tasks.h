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

/// Calls body(index, thread) for index in [0, count) like parallel_for(), but each thread takes neighbouring
/// indices in ascending order, so that it can prefetch the next one, and then those that others have left.
template <class Body>
void for_each_in_order(const Context& ctx, std::int64_t count, const Body& body) {
  struct alignas(64) Range {  // on a line of its own
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };
  const std::int64_t threads = std::min<std::int64_t>(std::max(ctx.threads, 1), count);
  std::vector<Range> ranges(static_cast<std::size_t>(threads));
  for (std::int64_t t = 0; t < threads; ++t) {
    ranges[static_cast<std::size_t>(t)].next = count * t / threads;
    ranges[static_cast<std::size_t>(t)].end = count * (t + 1) / threads;
  }
  parallel_for(ctx, threads, [&](std::int64_t /*index*/, int thread) {
    for (std::int64_t r = 0; r < threads; ++r) {
      Range& range = ranges[static_cast<std::size_t>((thread + r) % threads)];
      const auto take = [&] { return range.next.fetch_add(1, std::memory_order_relaxed); };
      for (std::int64_t i = take(); i < range.end; i = take()) body(i, thread);
    }
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
