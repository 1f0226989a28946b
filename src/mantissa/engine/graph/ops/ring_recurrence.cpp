#include "mantissa/engine/graph/ops/ring_recurrence.h"

#include <algorithm>
#include <span>

#include "mantissa/engine/graph/key_ring.h"
#include "mantissa/engine/graph/ops/ring_memory.h"
#include "mantissa/engine/graph/ops/ring_rows.h"

namespace mantissa::graph {
namespace {

/// Returns a function that takes matrices with a state for each row.
auto states_in(RingMemory& memory, const Call& c, const kernels::RecurrenceShape& shape) {
  return
      [&, rows = c.ring->rows(), width = shape.state()] { return memory.matrix(rows, width, c.arithmetic); };
}

Extent with(const Extent& extent, std::span<const Segment> segments) {
  Extent own = extent;
  own.segments = segments;
  return own;
}

/// Runs the blocks of this rank in ascending order, with the states that they begin with in `before`, [2].
/// The states after a block are sent on from `after`, [2].
void run_blocks(const Call& c, kernels::Recurrence r, bool only_states, std::span<const Matrix> before,
                std::span<const Matrix> after) {
  KeyRing& ring = *c.ring;
  Transfers sending;
  const ConstMatrix carried = r.before;
  const Matrix ended = r.state;
  for (const std::size_t late : {0, 1}) {
    const int block = late == 0 ? ring.early() : ring.late();
    const bool follows = late == 1 && ring.late() == ring.early() + 1;
    const std::span<std::byte> begins = bytes_in(before[late], ring.rows());
    if (follows) {
      std::ranges::copy(bytes_in(after[0], ring.rows()), begins.begin());
    } else if (block > 0) {
      ring.receive(block - 1, begins).get();
    } else {
      begin_with_carried(c, carried, before[late], r.shape.state());
    }
    const BlockSegments segments = segments_of_block(c, block);
    r.before = before[late];
    r.state = {};
    if (!only_states && !segments.earlier.empty())
      kernels::recurrence(c.ctx, with(c.extent, segments.earlier), r);
    const bool ends = block + 1 == ring.blocks();
    if (only_states && ends) return;
    r.state = after[late];
    kernels::recurrence(c.ctx, with(c.extent, segments.last), r);
    if (ends) end_with_carried(c, after[late], ended, r.shape.state());
    const bool stays = late == 0 && ring.late() == ring.early() + 1;
    if (!ends && !stays)
      sending.start(late, [&] { return ring.send(block + 1, bytes_in(after[late], ring.rows())); });
  }
  sending.complete();
}

std::size_t states_bytes(const kernels::RecurrenceShape& shape, std::int64_t rows, Scalar arithmetic,
                         std::size_t count) {
  return count * aligned(static_cast<std::size_t>(rows * shape.state()) * bytes_of(arithmetic));
}

}  // namespace

std::size_t ring_recurrence_workspace(const kernels::RecurrenceShape& shape, std::int64_t rows,
                                      Scalar arithmetic) {
  return states_bytes(shape, rows, arithmetic, 4);
}

std::size_t ring_recurrence_backward_workspace(const kernels::RecurrenceShape& shape, std::int64_t rows,
                                               Scalar arithmetic) {
  return states_bytes(shape, rows, arithmetic, 5);
}

void ring_recurrence(const Call& c, kernels::Recurrence r) {
  RingMemory memory(c, kernels::recurrence_workspace(c.ctx, r.shape, c.arithmetic));
  const auto states = states_in(memory, c, r.shape);
  const Matrix before[] = {states(), states()}, after[] = {states(), states()};
  run_blocks(c, r, false, before, after);
}

void ring_recurrence_backward(const Call& c, kernels::Recurrence forward, kernels::RecurrenceBackward r) {
  KeyRing& ring = *c.ring;
  std::int64_t longest = 0;
  for (const Segment& s : c.extent.segments) longest = std::max(longest, s.length);
  RingMemory memory(c,
                    std::max(kernels::recurrence_workspace(c.ctx, r.shape, c.arithmetic),
                             kernels::recurrence_backward_workspace(c.ctx, r.shape, longest, c.arithmetic)));
  const auto states = states_in(memory, c, r.shape);
  const Matrix before[] = {states(), states()}, after[] = {states(), states()};
  forward.before = r.before;
  run_blocks(c, forward, true, before, after);
  // The gradients of the states after a block, and before it.
  const Matrix dafter = after[0];
  const Matrix dbefore[] = {after[1], states()};
  Transfers sending;
  for (const std::size_t late : {1, 0}) {
    const int block = late == 0 ? ring.early() : ring.late();
    const std::span<std::byte> ends = bytes_in(dafter, ring.rows());
    if (late == 0 && ring.late() == ring.early() + 1) {
      std::ranges::copy(bytes_in(dbefore[1], ring.rows()), ends.begin());
    } else if (block + 1 < ring.blocks()) {
      ring.receive(block + 1, ends).get();
    } else {
      std::ranges::fill(ends, std::byte{0});
    }
    const BlockSegments segments = segments_of_block(c, block);
    std::ranges::fill(bytes_in(dbefore[late], ring.rows()), std::byte{0});
    r.before = before[late];
    r.dbefore = dbefore[late];
    r.dafter = {};
    if (!segments.earlier.empty()) kernels::recurrence_backward(c.ctx, with(c.extent, segments.earlier), r);
    r.dafter = dafter;
    kernels::recurrence_backward(c.ctx, with(c.extent, segments.last), r);
    const bool stays = late == 1 && ring.late() == ring.early() + 1;
    if (block > 0 && !stays)
      sending.start(late, [&] { return ring.send(block - 1, bytes_in(dbefore[late], ring.rows())); });
  }
  sending.complete();
}

}  // namespace mantissa::graph
