// The order of training rows over all epochs, and their division into packs.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "mantissa/text/permutation.h"

namespace mantissa::text {

/// Rows are counted over all epochs: row `i` is the data's row order(i), in epoch i / rows. With `shuffle`
/// each epoch is a permutation that depends only on (seed, epoch).
class RowOrder {
 public:
  RowOrder(std::int64_t rows, bool shuffle, std::uint64_t seed);
  /// Returns the data's row of `i`. Consecutive calls in one epoch are fast.
  std::int64_t operator()(std::int64_t i) { return at(i / rows_, i % rows_); }
  /// Returns the data's row at `place` of an epoch.
  std::int64_t at(std::int64_t epoch, std::int64_t place);

 private:
  std::int64_t rows_;
  bool shuffle_;
  std::uint64_t seed_;
  std::int64_t epoch_ = 0;
  Permutation permutation_;
};

/// Packs of consecutive rows of an order, which may cross epochs: a row begins a pack if it does not fit into
/// the one before. The order of the rows stays that of training without packs. Packs need all packs before
/// them, so those that were found are kept. Safe to use from several threads.
class Packs {
 public:
  /// `lengths` are those of the data's rows, each at most `capacity`.
  Packs(std::vector<std::int32_t> lengths, std::int64_t capacity, RowOrder order);
  /// Returns the first row of pack `pack`, counted over all epochs.
  std::int64_t first_row(std::int64_t pack);

 private:
  std::vector<std::int32_t> lengths_;
  std::int64_t capacity_;
  RowOrder order_;
  std::mutex mutex_;
  std::vector<std::int64_t> first_ = {0};
};

}  // namespace mantissa::text
