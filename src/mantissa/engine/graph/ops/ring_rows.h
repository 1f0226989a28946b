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

/// Copies the states that rows continue, [slots, width], from the slots of the rows that begin after other
/// tokens to their rows of `to`. Does nothing unless this rank has the first block.
void begin_with_carried(const Call& c, const ConstMatrix& carried, Matrix to, std::int64_t width);
/// Copies the states after the last block from the rows of `from` to the slots of `carried`. Does nothing
/// unless this rank has the last block.
void end_with_carried(const Call& c, const ConstMatrix& from, Matrix carried, std::int64_t width);

/// Exchanges a vector for each row at every boundary of this rank's blocks: with `up`, fill(block, vectors)
/// makes those that the block after it receives, otherwise those for the block before it. `sent` and
/// `received` have 2 · rows vectors, of the early block and then of the late one; those of a block at the end
/// of its row that receives none are zeros.
void exchange_rows(const Call& c, bool up, Matrix sent, Matrix received,
                   const std::function<void(int block, Matrix vectors)>& fill);

}  // namespace mantissa::graph
