// The recurrence over rows whose tokens several ranks share: the states travel on from block to block, and
// their gradients back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/engine/graph/op.h"
#include "mantissa/kernels/recurrence.h"

namespace mantissa::graph {

/// Runs the recurrence over this rank's blocks, each after the block before it. It has the bits of whole
/// rows. `r.before` are the states that rows continue, and `r.state` takes those after them.
void ring_recurrence(const Call& c, kernels::Recurrence r);
/// Does the same for its gradient: `forward` once more for the states that blocks begin with, which no rank
/// keeps, then the blocks from the last one on. `forward.y` is overwritten.
void ring_recurrence_backward(const Call& c, kernels::Recurrence forward, kernels::RecurrenceBackward r);

/// Return the bytes of workspace beside those of the kernels, for micro-batches of `rows` rows.
std::size_t ring_recurrence_workspace(const kernels::RecurrenceShape& shape, std::int64_t rows,
                                      Scalar arithmetic);
std::size_t ring_recurrence_backward_workspace(const kernels::RecurrenceShape& shape, std::int64_t rows,
                                               Scalar arithmetic);

}  // namespace mantissa::graph
