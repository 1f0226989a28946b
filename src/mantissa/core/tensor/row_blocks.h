// The blocks into which a row of tokens is cut for the ranks that share it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mantissa {

/// Tokens [begin, end) of a row.
struct TokenRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
};

/// Returns block `block` of `blocks` of a row with `length` tokens: as equal as whole tokens allow.
constexpr TokenRange block_of(std::int64_t length, std::int64_t block, std::int64_t blocks) {
  return {length * block / blocks, length * (block + 1) / blocks};
}

/// Returns the tokens of a row of `length` tokens with the padding that `parts` ranks share too, so that each
/// of them has an early and a late one.
constexpr std::int64_t shared_length(std::int64_t length, std::int64_t parts) {
  return std::max(length, 2 * parts);
}

}  // namespace mantissa
