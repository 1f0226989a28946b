// The division of rows of a matrix into blocks, each of which lies in one row of a batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/core/numeric/scaled.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/cpu/piece.h"
#include "mantissa/kernels/cpu/tasks.h"

namespace mantissa::kernels {

/// Returns how many of `rows` share scales in formats with blocks of `block` elements along columns.
inline std::int64_t shared_rows(std::int32_t block, const BlockScaling& scaling, std::int64_t rows) {
  return scaling.length == kWholeSum ? std::max<std::int64_t>(rows, 1) : std::max(block, scaling.length);
}

/// Returns blocks of `length` tokens, or fewer at the end of a row, from the first token of each of `rows`
/// (empty: one row of all `tokens`).
inline std::vector<Row> token_blocks(std::int64_t tokens, std::int64_t length, std::span<const Row> rows) {
  const Row whole{0, tokens};
  std::vector<Row> blocks;
  for (const Row& row : rows.empty() ? std::span(&whole, 1) : rows) {
    for (std::int64_t i = 0; i < row.length; i += length)
      blocks.push_back({row.begin + i, std::min(length, row.length - i)});
  }
  return blocks;
}

/// A range of columns.
struct ColumnRange {
  std::size_t begin = 0, end = 0;
};

/// Calls run(begin, end, columns) for the rows of each of `blocks`, in parallel: for all columns, or for
/// pieces of them if a block may be the whole matrix.
template <class Run>
void for_columns_of_blocks(const Context& ctx, std::span<const Row> blocks, std::int64_t width,
                           const BlockScaling& scaling, const Run& run) {
  const auto columns = static_cast<std::size_t>(width);
  const std::size_t piece = scaling.length == kWholeSum ? kColumnPiece : std::max<std::size_t>(columns, 1);
  const std::size_t pieces = (columns + piece - 1) / piece;
  parallel_for(ctx, static_cast<std::int64_t>(blocks.size() * pieces), [&](std::int64_t i, int) {
    const auto at = static_cast<std::size_t>(i);
    const Row& block = blocks[at / pieces];
    const std::size_t first = at % pieces * piece;
    run(static_cast<std::size_t>(block.begin), static_cast<std::size_t>(block.begin + block.length),
        ColumnRange{first, std::min(columns, first + piece)});
  });
}

}  // namespace mantissa::kernels
