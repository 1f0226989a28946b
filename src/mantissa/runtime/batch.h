// Rows of equal length on the token axis: the extent of a training micro-batch or a trace.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/tensor/extent.h"

namespace mantissa::runtime {

/// Owns the rows and segments to which its extent points.
class Batch {
 public:
  /// Creates `rows` sequences of `length` tokens each, with one segment per row.
  Batch(std::int64_t rows, std::int64_t length, std::int64_t rows_per_leaf) {
    for (std::int64_t r = 0; r < rows; ++r) {
      rows_.push_back({r * length, length});
      segments_.push_back({r * length, length, 0, r});
    }
    extent_ = {rows * length, rows_, segments_, rows_per_leaf};
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  Batch(Batch&&) = default;
  Batch& operator=(Batch&&) = default;

  const Extent& extent() const { return extent_; }

  /// Keys the random numbers of the rows by `seed` and sequences from `first` on.
  void key(std::uint64_t seed, std::uint64_t first) {
    extent_.seed = seed;
    for (Segment& s : segments_) s.sequence = first++;
  }

 private:
  std::vector<Row> rows_;
  std::vector<Segment> segments_;
  Extent extent_;
};

}  // namespace mantissa::runtime
