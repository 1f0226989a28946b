// What of a graph's capacity one run uses: how many tokens, which rows they form, and where each segment
// stands.
#pragma once

#include <cstdint>
#include <span>

namespace mantissa {

/// A whole row (sequence) of the batch: tokens [begin, begin + length) of the token axis. Sums over tokens
/// are made of leaves of whole rows (docs/numerics.md, "Sums over tokens").
struct Row {
  std::int64_t begin = 0;
  std::int64_t length = 0;
};

/// Tokens that attend to each other: [begin, begin + length) of the token axis, at positions `position`
/// onward of their sequence. `slot` is the cache slot that holds the earlier positions; unused where there is
/// no cache. `sequence` tells sequences apart for random numbers.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t position = 0;
  std::int64_t slot = 0;
  std::uint64_t sequence = 0;
};

/// The extents of one run. Spans are borrowed. Rows and segments cover [0, tokens) in order; in decoding,
/// which sums nothing over tokens, there are rows only for the segments whose logits are asked.
struct Extent {
  std::int64_t tokens = 0;
  std::span<const Row> rows;
  std::span<const Segment> segments;
  std::int64_t rows_per_leaf = 1;
  std::uint64_t seed = 0;  // of random numbers
  std::uint64_t step = 0;  // attempted optimizer steps: a key of what updates draw
};

/// Tokens of one summation block: within a leaf, blocks of this many tokens from each row's start are one FMA
/// chain each.
inline constexpr std::int64_t kSumBlock = 256;

}  // namespace mantissa
