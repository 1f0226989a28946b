// The tokens of a run in chunks, for steps that run chunk by chunk (plan::ChunkedSteps).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mantissa/core/tensor/extent.h"

namespace mantissa::runtime {

/// Consecutive tokens of a run: whole leaves, or a part of one leaf.
struct TokenChunk {
  struct PartOfLeaf {
    bool opens = false, closes = false;  // the first and the last part
  };
  std::int64_t first_token = 0;
  Extent extent;                   // counted from the chunk's first token
  std::optional<PartOfLeaf> leaf;  // null: whole leaves
  bool after_leaf = false;         // earlier chunks of the run have completed a leaf
  bool last = false;               // of the run
};

class TokenChunks {
 public:
  /// Divides a run into chunks of at most `most` tokens, a multiple of kSumBlock. A part of a leaf lies in
  /// one row and begins at a multiple of kSumBlock tokens from the row's start. Rows that do not cover the
  /// tokens, as in decoding, count as one leaf. A run without tokens is one chunk.
  TokenChunks(const Extent& run, std::int64_t most);
  TokenChunks(const TokenChunks&) = delete;
  TokenChunks& operator=(const TokenChunks&) = delete;

  const std::vector<TokenChunk>& all() const { return chunks_; }

 private:
  void add(std::int64_t begin, std::int64_t end, std::size_t first_row, std::size_t last_row);

  const Extent& run_;
  std::vector<Row> run_rows_;
  std::vector<TokenChunk> chunks_;
  std::vector<std::vector<Row>> rows_;          // of each chunk
  std::vector<std::vector<Segment>> segments_;  // of each chunk
};

}  // namespace mantissa::runtime
