#include "mantissa/engine/graph/ops/ring_token_shift.h"

#include <algorithm>

#include "mantissa/engine/graph/key_ring.h"
#include "mantissa/engine/graph/ops/ring_memory.h"
#include "mantissa/engine/graph/ops/ring_rows.h"
#include "mantissa/kernels/columns.h"

namespace mantissa::graph {
namespace {

/// A vector of `channels` for each row of both blocks: one matrix to send, and one to receive.
struct Vectors {
  Matrix sent, received;

  Vectors(const Call& c, std::int64_t channels, Scalar type) {
    RingMemory memory(c, 0);
    for (Matrix* m : {&sent, &received}) *m = memory.matrix(2 * c.ring->rows(), channels, type);
  }
};

/// Returns the row of a segment's block among the vectors.
std::int64_t slot_of(const KeyRing& ring, int block, const Segment& s) {
  return s.slot + (block == ring.late() ? ring.rows() : 0);
}

}  // namespace

std::size_t ring_shift_workspace(std::int64_t rows, std::int64_t channels, Scalar arithmetic) {
  return 2 * aligned(static_cast<std::size_t>(2 * rows * channels) * bytes_of(arithmetic));
}

TokensBefore::TokensBefore(const Call& c, const ConstMatrix& carried)
    : segments_(c.extent.segments.begin(), c.extent.segments.end()), extent_(c.extent) {
  const KeyRing& ring = *c.ring;
  const Argument& x = c.inputs[0];
  const Vectors vectors(c, x.width, x.type);
  tokens_ = vectors.received;
  exchange_rows(c, true, vectors.sent, vectors.received, [&](int block, Matrix to) {
    for (const Segment& s : segments_of_block(c, block).last)
      kernels::copy_columns(c.ctx, 1, x.width, rows_from(x.out(), s.begin + s.length - 1),
                            rows_from(to, s.slot));
  });
  begin_with_carried(c, carried, vectors.received, x.width);
  for (const int block : {ring.early(), ring.late()}) {
    for (const BlockPiece& piece : ring.pieces(block)) {
      for (Segment& s : segments_) {
        if (s.begin == piece.token) s.slot = piece.of + (block == ring.late() ? ring.rows() : 0);
      }
    }
  }
  extent_.segments = segments_;
}

void end_with_tokens(const Call& c, Matrix carried) {
  const KeyRing& ring = *c.ring;
  if (ring.late() + 1 != ring.blocks()) return;
  const Argument& x = c.inputs[0];
  for (const Segment& segment : segments_of_block(c, ring.late()).last) {
    const auto own = std::ranges::find(c.extent.segments, segment.begin, &Segment::begin);
    kernels::copy_columns(c.ctx, 1, x.width, rows_from(x.out(), segment.begin + segment.length - 1),
                          rows_from(carried, own->slot));
  }
}

GradientsAfter::GradientsAfter(const Call& c, const kernels::TokenShiftBackward& s)
    : rows_(c.extent.segments.size(), -1) {
  const KeyRing& ring = *c.ring;
  const Vectors vectors(c, s.channels, c.arithmetic);
  gradients_ = vectors.received;
  exchange_rows(c, false, vectors.sent, vectors.received, [&](int block, Matrix to) {
    for (const BlockPiece& piece : ring.pieces(block)) {
      const bool first = &piece == ring.pieces(block).data() || (&piece)[-1].of != piece.of;
      if (!first) continue;
      if (piece.position > 0) {
        kernels::token_shift_first(c.ctx, s, piece.token, to, piece.of);
      } else {
        kernels::zero_columns(c.ctx, 1, s.channels, rows_from(to, piece.of));
      }
    }
  });
  for (const int block : {ring.early(), ring.late()}) {
    for (const Segment& last : segments_of_block(c, block).last) {
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        if (c.extent.segments[i].begin == last.begin) rows_[i] = slot_of(ring, block, last);
      }
    }
  }
}

}  // namespace mantissa::graph
