// What passes between neighbouring blocks of rows that ranks share: one vector for each row.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/graph/op.h"

namespace mantissa::graph {

/// The segments of this rank's block `block`, with the number of their row as slot. `last` are those that end
/// with the block; the others are `earlier`.
struct BlockSegments {
  std::vector<Segment> earlier, last;
};
BlockSegments segments_of_block(const Call& c, int block);

/// Exchanges a vector for each row at every boundary of this rank's blocks: with `up`, fill(block, vectors)
/// makes those that the block after it receives, otherwise those for the block before it. `sent` and
/// `received` have 2 · rows vectors, of the early block and then of the late one; those of a block at the end
/// of its row that receives none are zeros.
void exchange_rows(const Call& c, bool up, Matrix sent, Matrix received,
                   const std::function<void(int block, Matrix vectors)>& fill);

}  // namespace mantissa::graph
