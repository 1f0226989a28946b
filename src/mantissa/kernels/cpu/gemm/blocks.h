// The partition of k that gemm() documents: leaves of rows, and rows of blocks, each block a chain of 256
// terms or, in tile order, several blocks of 32 that a unit multiplies at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "mantissa/core/tensor/extent.h"

namespace mantissa::kernels::gemm_plan {

/// Terms [k, k + depth) of the sum. In the packed operands they start at `packed` and take `stored` places
/// (rows may leave gaps in k). For operands in parts, the product of one part of each.
struct Block {
  std::size_t k = 0;
  std::size_t depth = 0;
  std::size_t packed = 0, stored = 0;
  bool opens_leaf = false;
  bool closes_leaf = false;
  bool in_first_leaf = false;
  bool first = false;
  bool last = false;
  bool opens_row = false;
  bool closes_row = false;
  bool rounds = false;          // the leaf's sum rounds after this block, if the accumulator rounds
  bool after_rounding = false;  // it rounded before this block, or the block opens the leaf
  std::size_t a_part = 0, b_part = 0;
  std::size_t piece = 0;  // the place of the product of these parts in the order of addition
};

/// Iterates over the blocks in order. Empty rows and empty leaves have none.
class Blocks {
 public:
  /// Returns the places that a block of `depth` terms takes in the packed operands.
  using Stored = std::size_t (*)(std::size_t depth);
  static constexpr std::size_t as_it_is(std::size_t depth) { return depth; }

  /// `one` is the only row if `rows` is empty. Both are borrowed. With `cut` > 0, blocks also end after every
  /// `cut` terms of a leaf. Another `longest` than kSumBlock, a multiple of kTileBlock, is for tile order
  /// without `cut`: a row then splits evenly.
  Blocks(std::span<const Row> rows, std::int64_t rows_per_leaf, const Row& one, std::int64_t cut = 0,
         std::size_t longest = kSumBlock, Stored stored = as_it_is)
      : rows_(rows.empty() ? std::span(&one, 1) : rows),
        rows_per_leaf_(static_cast<std::size_t>(std::max<std::int64_t>(1, rows_per_leaf))),
        cut_(static_cast<std::size_t>(cut)),
        longest_(longest),
        stored_(stored) {
    skip_empty_rows();
  }

  /// Stores the next block in `block`. Returns false after the last one.
  bool next(Block& block) {
    if (row_ == rows_.size()) return false;
    const std::size_t leaf = row_ / rows_per_leaf_;
    const auto begin = static_cast<std::size_t>(rows_[row_].begin),
               length = static_cast<std::size_t>(rows_[row_].length);
    if (packed_ == 0) first_leaf_ = leaf;
    block.k = begin + in_row_;
    block.depth = std::min(depth_in(length), length - in_row_);
    block.packed = packed_;
    block.first = packed_ == 0;
    block.opens_leaf = block.first || leaf != last_leaf_;
    if (block.opens_leaf) in_leaf_ = 0;
    block.opens_row = in_row_ == 0;
    block.after_rounding = cut_ == 0 || in_leaf_ % cut_ == 0;
    if (cut_ > 0) {
      const std::size_t since = in_leaf_ % cut_, in_block = since % kSumBlock;
      block.depth = std::min({block.depth, cut_ - since, kSumBlock - in_block});
    }
    in_leaf_ += block.depth;
    block.in_first_leaf = leaf == first_leaf_;
    last_leaf_ = leaf;
    block.stored = stored_(block.depth);
    packed_ += block.stored;
    in_row_ += block.depth;
    block.closes_row = in_row_ == length;
    if (block.closes_row) {
      in_row_ = 0;
      ++row_;
      skip_empty_rows();
    }
    block.last = row_ == rows_.size();
    block.closes_leaf = block.last || row_ / rows_per_leaf_ != leaf;
    block.rounds = block.closes_leaf || cut_ == 0 || in_leaf_ % cut_ == 0;
    return true;
  }

 private:
  void skip_empty_rows() {
    while (row_ < rows_.size() && rows_[row_].length <= 0) ++row_;
  }

  /// Returns the terms per block of a row.
  std::size_t depth_in(std::size_t length) const {
    if (longest_ == kSumBlock) return longest_;
    const std::size_t blocks = (length + longest_ - 1) / longest_, even = (length + blocks - 1) / blocks;
    return (even + kTileBlock - 1) / kTileBlock * kTileBlock;
  }

  std::span<const Row> rows_;
  std::size_t rows_per_leaf_, cut_, longest_;
  Stored stored_;
  std::size_t row_ = 0, in_row_ = 0, in_leaf_ = 0, packed_ = 0;
  std::size_t first_leaf_ = 0, last_leaf_ = 0;
};

/// The products of parts of a block, in the order of addition.
class Pieces {
 public:
  /// `swap` gives the order of the transposed product, which exchanges A's and B's parts.
  Pieces(const Block& block, int parts, bool swap)
      : block_(block), parts_(static_cast<std::size_t>(parts)), swap_(swap) {
    sum_ = parts_ - 1;
    a_part_ = sum_;
  }

  /// Stores the next product in `piece`. Returns false after the last one. Only the first one opens a leaf
  /// and only the last one closes a row or a leaf, but all of the first block open the row: they may have
  /// sums of their own.
  bool next(Block& piece) {
    if (done_) return false;
    piece = block_;
    piece.a_part = a_part_;
    piece.b_part = sum_ - a_part_;
    piece.piece = place_++;
    if (swap_) std::swap(piece.a_part, piece.b_part);
    const bool opens = sum_ + 1 == parts_ && a_part_ == sum_;
    done_ = sum_ == 0;
    piece.first = block_.first && opens;
    piece.opens_leaf = block_.opens_leaf && opens;
    piece.last = block_.last && done_;
    piece.closes_leaf = block_.closes_leaf && done_;
    piece.closes_row = block_.closes_row && done_;
    piece.rounds = block_.rounds && done_;
    if (a_part_ > 0) {
      --a_part_;
    } else if (sum_ > 0) {
      a_part_ = --sum_;
    }
    return true;
  }

 private:
  Block block_;
  std::size_t parts_;
  bool swap_;
  std::size_t sum_ = 0, a_part_ = 0;  // of the next product: the sum of both parts' indices, and A's index
  std::size_t place_ = 0;
  bool done_ = false;
};

/// The properties of all blocks that a product needs in advance.
struct BlockSummary {
  std::size_t depth = 0;    // places that all blocks take in the packed operands
  std::size_t longest = 0;  // terms of the longest block
  std::size_t blocks = 0;
  std::size_t leaves = 0;
  bool long_leaf = false;  // a leaf after the first one has several blocks
  bool long_first_leaf = false;
};

inline BlockSummary summarize(Blocks blocks) {
  BlockSummary s;
  for (Block b; blocks.next(b);) {
    s.depth += b.stored;
    s.longest = std::max(s.longest, b.depth);
    ++s.blocks;
    if (b.opens_leaf) ++s.leaves;
    if (!(b.opens_leaf && b.closes_leaf)) (b.in_first_leaf ? s.long_first_leaf : s.long_leaf) = true;
  }
  return s;
}

}  // namespace mantissa::kernels::gemm_plan
