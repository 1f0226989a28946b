// The extents of one run of a graph: the number of tokens, their split into rows, and the position of each
// segment.
#pragma once

#include <cstdint>
#include <span>

namespace mantissa {

/// A whole row (sequence) of the batch: tokens [begin, begin + length) of the token axis. The leaves of sums
/// over tokens consist of whole rows (docs/numerics.md, "Sums over tokens").
struct Row {
  std::int64_t begin = 0;
  std::int64_t length = 0;
};

/// Tokens that attend to each other: [begin, begin + length) of the token axis, at positions `position`
/// onward of their sequence. `slot` is the cache slot that holds the earlier positions; unused without a
/// cache. `sequence` identifies the sequence to the random number generator.
struct Segment {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t position = 0;
  std::int64_t slot = 0;
  std::uint64_t sequence = 0;
};

/// The extents of one run. Spans are borrowed. Segments cover [0, tokens) in order, and so do rows except in
/// decoding: decoding computes no sums over tokens, and its rows are the segments whose logits are requested.
struct Extent {
  std::int64_t tokens = 0;
  std::span<const Row> rows;
  std::span<const Segment> segments;
  std::int64_t rows_per_leaf = 1;
  std::uint64_t seed = 0;      // of the random number generator
  std::uint64_t step = 0;      // attempted optimizer steps; a key of the random numbers of updates
  std::int64_t first_row = 0;  // of a chunk of a run: the index of rows[0] in the run
  bool trains = false;         // a backward pass follows: dropout drops, and otherwise passes all values on
};

/// Tokens per summation block: within a leaf, every kSumBlock tokens from a row's start form one chain of
/// fused multiply-adds.
inline constexpr std::int64_t kSumBlock = 256;
/// Terms per block in tile order; divides kSumBlock.
inline constexpr std::size_t kTileBlock = 32;

}  // namespace mantissa
