// Rows of tokens for one run of a program: ids, targets, weights of the predictions, and the documents that
// attend only to themselves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/row_tokens.h"

namespace mantissa::runtime {

/// Owns rows of any lengths, consecutive on the token axis. Targets, weights and documents alone express
/// masking, packing and padding: programs and kernels do not distinguish such rows from others.
class Batch {
 public:
  /// `rows_per_leaf`: the number of rows in a leaf of sums over tokens (docs/numerics.md). `seed` is a key of
  /// the random numbers.
  explicit Batch(std::int64_t rows_per_leaf = 1, std::uint64_t seed = 0);

  void clear();
  /// Appends a copy of `row`. Throws ShapeError if the row is empty, if the number of targets or weights
  /// differs from that of the ids, or if the documents' lengths are not positive or do not sum to the row's.
  void add(const RowTokens& row);
  /// Appends the part of a row that the rank with part `part` of `parts` has: an early and a late block
  /// (core/tensor/row_blocks.h), which are one row of the batch. Tokens that a short row lacks follow without
  /// targets.
  void add_part(const RowTokens& row, int part, int parts);

  /// Returns the extent of a run over the rows. Valid until rows are added or cleared.
  Extent extent() const;
  std::int64_t tokens() const { return static_cast<std::int64_t>(ids_.size()); }
  std::int64_t rows() const { return static_cast<std::int64_t>(rows_.size()); }
  /// Return the values of all tokens, row by row.
  std::span<const std::int32_t> ids() const { return ids_; }
  std::span<const std::int32_t> targets() const { return targets_; }
  /// Returns the weights, 0 for tokens without a target.
  std::span<const float> weights() const { return weights_; }

 private:
  /// Appends tokens [first, end) of a row.
  void append(const RowTokens& row, std::int64_t first, std::int64_t end, std::int64_t slot);

  std::int64_t rows_per_leaf_;
  std::uint64_t seed_;
  std::vector<Row> rows_;
  std::vector<Segment> segments_;
  std::vector<std::int32_t> ids_, targets_;
  std::vector<float> weights_;
};

}  // namespace mantissa::runtime
