// The division of tokens into blocks, each of which lies in one row of a batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/core/tensor/extent.h"

namespace mantissa::kernels {

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

}  // namespace mantissa::kernels
