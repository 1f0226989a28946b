// Rows of tokens for one run of a program: what is fed, what attends to what, what is predicted after each
// token, and how much each prediction counts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/tensor/extent.h"

namespace mantissa::runtime {

/// One row. The model predicts targets[t] after ids[0 … t].
struct BatchRow {
  std::span<const std::int32_t> ids;
  std::span<const std::int32_t> targets;         // as many as ids; −1: nothing is predicted
  std::span<const float> weights = {};           // as many as ids; empty: 1 for each token with a target
  std::span<const std::int64_t> documents = {};  // lengths of the parts that attend only to themselves, with
                                                 // positions from 0; empty: the row is one
  std::uint64_t sequence = 0;                    // keys the random numbers that are drawn for the row
};

/// Owns rows of any lengths one after the other on the token axis. Masking and packing are a matter of
/// targets, weights and segments: nothing below distinguishes a packed or padded row from another.
class Batch {
 public:
  /// `rows_per_leaf`: the rows of one leaf of the sums over tokens (docs/numerics.md). `seed` keys the random
  /// numbers.
  explicit Batch(std::int64_t rows_per_leaf = 1, std::uint64_t seed = 0);

  void clear();
  /// Throws ShapeError if the row is empty, targets or weights are not as many as ids, or the documents'
  /// lengths are not positive or do not sum to the row's.
  void add(const BatchRow& row);

  /// Valid until rows are added or cleared.
  Extent extent() const;
  std::int64_t tokens() const { return static_cast<std::int64_t>(ids_.size()); }
  std::int64_t rows() const { return static_cast<std::int64_t>(rows_.size()); }
  /// Of all tokens, row after row.
  std::span<const std::int32_t> ids() const { return ids_; }
  std::span<const std::int32_t> targets() const { return targets_; }
  /// 0 for tokens without a target.
  std::span<const float> weights() const { return weights_; }

 private:
  std::int64_t rows_per_leaf_;
  std::uint64_t seed_;
  std::vector<Row> rows_;
  std::vector<Segment> segments_;
  std::vector<std::int32_t> ids_, targets_;
  std::vector<float> weights_;
};

}  // namespace mantissa::runtime
