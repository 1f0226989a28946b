// The rows of a sum over tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/engine/graph/op.h"

namespace mantissa::graph {

/// The rows of a sum over the first dimension of an operand, given by the extent. If the operand has one
/// entry per sequence, each entry is a separate row.
class SumRows {
 public:
  SumRows(const Argument& x, const Extent& extent) : rows_(extent.rows) {
    if (x.axis != Axis::rows) return;
    for (std::int64_t r = 0; r < x.rows; ++r) entries_.push_back({r, 1});
    rows_ = entries_;
  }
  SumRows(const SumRows&) = delete;
  SumRows& operator=(const SumRows&) = delete;
  std::span<const Row> rows() const { return rows_; }

 private:
  std::vector<Row> entries_;
  std::span<const Row> rows_;
};

}  // namespace mantissa::graph
