#include "mantissa/engine/graph/ops/ring_recurrence.h"

#include <algorithm>
#include <span>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/key_ring.h"
#include "mantissa/engine/graph/ops/ring_rows.h"

namespace mantissa::graph {
namespace {

/// Matrices of a state for each row, after the workspace of the kernels.
class StateMemory {
 public:
  StateMemory(const Call& c, std::size_t kernels, const kernels::RecurrenceShape& shape)
      : memory_(c.ctx.workspace, c.ctx.workspace_bytes),
        used_(aligned(kernels)),
        rows_(c.ring->rows()),
        ld_(shape.state()),
        type_(c.arithmetic) {}

  Matrix take() {
    const std::size_t bytes = aligned(static_cast<std::size_t>(rows_ * ld_) * bytes_of(type_));
    if (used_ + bytes > memory_.size())
      throw InternalError("recurrence over ranks: a workspace of {} bytes is too small", memory_.size());
    const Matrix m{memory_.data() + used_, type_, ld_};
    used_ += bytes;
    return m;
  }

 private:
  std::span<std::byte> memory_;
  std::size_t used_;
  std::int64_t rows_, ld_;
  Scalar type_;
};

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
  for (const std::size_t late : {0, 1}) {
    const int block = late == 0 ? ring.early() : ring.late();
    const bool follows = late == 1 && ring.late() == ring.early() + 1;
    const std::span<std::byte> begins = bytes_in(before[late], ring.rows());
    if (follows) {
      std::ranges::copy(bytes_in(after[0], ring.rows()), begins.begin());
    } else if (block > 0) {
      Transfers receiving;
      receiving.add(ring.receive(block - 1, begins));
      receiving.complete();
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
    const bool stays = late == 0 && ring.late() == ring.early() + 1;
    if (!ends && !stays) sending.add(ring.send(block + 1, bytes_in(after[late], ring.rows())));
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
  StateMemory memory(c, kernels::recurrence_workspace(c.ctx, r.shape, c.arithmetic), r.shape);
  const Matrix before[] = {memory.take(), memory.take()}, after[] = {memory.take(), memory.take()};
  run_blocks(c, r, false, before, after);
}

void ring_recurrence_backward(const Call& c, kernels::Recurrence forward, kernels::RecurrenceBackward r) {
  KeyRing& ring = *c.ring;
  std::int64_t longest = 0;
  for (const Segment& s : c.extent.segments) longest = std::max(longest, s.length);
  StateMemory memory(c,
                     std::max(kernels::recurrence_workspace(c.ctx, r.shape, c.arithmetic),
                              kernels::recurrence_backward_workspace(c.ctx, r.shape, longest, c.arithmetic)),
                     r.shape);
  const Matrix before[] = {memory.take(), memory.take()}, after[] = {memory.take(), memory.take()};
  run_blocks(c, forward, true, before, after);
  // The gradients of the states after a block, and before it.
  const Matrix dafter = after[0];
  const Matrix dbefore[] = {after[1], memory.take()};
  Transfers sending;
  for (const std::size_t late : {1, 0}) {
    const int block = late == 0 ? ring.early() : ring.late();
    const std::span<std::byte> ends = bytes_in(dafter, ring.rows());
    if (late == 0 && ring.late() == ring.early() + 1) {
      std::ranges::copy(bytes_in(dbefore[1], ring.rows()), ends.begin());
    } else if (block + 1 < ring.blocks()) {
      Transfers receiving;
      receiving.add(ring.receive(block + 1, ends));
      receiving.complete();
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
    if (block > 0 && !stays) sending.add(ring.send(block - 1, bytes_in(dbefore[late], ring.rows())));
  }
  sending.complete();
}

}  // namespace mantissa::graph
