// The cut of k that gemm() states: leaves of rows, rows of blocks of 256, each block a chain.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "mantissa/tensor/extent.h"

namespace mantissa::kernels::gemm_plan {

/// Terms [k, k + depth) of the sum, at place `packed` of the packed operands (rows may leave gaps in k).
struct Block {
  std::size_t k = 0;
  std::size_t depth = 0;
  std::size_t packed = 0;
  bool opens_leaf = false;
  bool closes_leaf = false;
  bool in_first_leaf = false;
  bool first() const { return packed == 0; }
  bool last = false;
};

/// Walks over the blocks in order. Empty rows and empty leaves have none.
class Blocks {
 public:
  /// `one` is the row to walk over where `rows` is empty. Both are borrowed.
  Blocks(std::span<const Row> rows, std::int64_t rows_per_leaf, const Row& one)
      : rows_(rows.empty() ? std::span(&one, 1) : rows),
        rows_per_leaf_(static_cast<std::size_t>(std::max<std::int64_t>(1, rows_per_leaf))) {
    skip_empty_rows();
  }

  /// The next block into `block`; false where there is none.
  bool next(Block& block) {
    if (row_ == rows_.size()) return false;
    const std::size_t leaf = row_ / rows_per_leaf_;
    const auto begin = static_cast<std::size_t>(rows_[row_].begin),
               length = static_cast<std::size_t>(rows_[row_].length);
    if (packed_ == 0) first_leaf_ = leaf;
    block.k = begin + in_row_;
    block.depth = std::min(static_cast<std::size_t>(kSumBlock), length - in_row_);
    block.packed = packed_;
    block.opens_leaf = packed_ == 0 || leaf != last_leaf_;
    block.in_first_leaf = leaf == first_leaf_;
    last_leaf_ = leaf;
    packed_ += block.depth;
    in_row_ += block.depth;
    if (in_row_ == length) {
      in_row_ = 0;
      ++row_;
      skip_empty_rows();
    }
    block.last = row_ == rows_.size();
    block.closes_leaf = block.last || row_ / rows_per_leaf_ != leaf;
    return true;
  }

 private:
  void skip_empty_rows() {
    while (row_ < rows_.size() && rows_[row_].length <= 0) ++row_;
  }

  std::span<const Row> rows_;
  std::size_t rows_per_leaf_;
  std::size_t row_ = 0, in_row_ = 0, packed_ = 0;
  std::size_t first_leaf_ = 0, last_leaf_ = 0;
};

/// What a product needs to know of its blocks beforehand.
struct BlockSummary {
  std::size_t depth = 0;  // of all blocks
  std::size_t blocks = 0;
  std::size_t leaves = 0;
  bool long_leaf = false;  // a leaf after the first one has several blocks
  bool long_first_leaf = false;
};

inline BlockSummary summarize(Blocks blocks) {
  BlockSummary s;
  for (Block b; blocks.next(b);) {
    s.depth += b.depth;
    ++s.blocks;
    if (b.opens_leaf) ++s.leaves;
    if (!(b.opens_leaf && b.closes_leaf)) (b.in_first_leaf ? s.long_first_leaf : s.long_leaf) = true;
  }
  return s;
}

}  // namespace mantissa::kernels::gemm_plan
