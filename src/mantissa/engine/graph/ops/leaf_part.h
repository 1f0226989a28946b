// Sums over tokens that may be called for a part of a leaf (Call::leaf).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mantissa/engine/graph/op.h"
#include "mantissa/kernels/update.h"

namespace mantissa::graph {

/// Adds the sum of a leaf to the output after its last part.
inline void close_leaf(const Call& c) {
  if (!c.leaf->closes) return;
  const Argument& sum = c.leaf->sum;
  const Argument& out = c.outputs[0];
  kernels::collect_gradient(c.ctx, out.rows * out.width, sum.data, sum.type, out.data, out.type,
                            c.accumulate);
}

/// Runs `sum(extent, out, accumulate)`, which adds blocks of kSumBlock tokens to leaves, and leaves to `out`.
/// In a part of a leaf each of these blocks is a leaf of its own, so it is added to the sum of the parts.
template <class Sum>
void sum_leaves(const Call& c, const Sum& sum) {
  if (c.leaf == nullptr) return sum(c.extent, c.outputs[0], c.accumulate);
  std::vector<Row> blocks;
  for (std::int64_t begin = 0; begin < c.extent.tokens; begin += kSumBlock)
    blocks.push_back({begin, std::min(kSumBlock, c.extent.tokens - begin)});
  Extent extent = c.extent;
  extent.rows = blocks;
  extent.rows_per_leaf = 1;
  sum(extent, c.leaf->sum, !c.leaf->opens);
  close_leaf(c);
}

}  // namespace mantissa::graph
