// Distribution of rows to threads, in tasks large enough to make the distribution cheap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

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
