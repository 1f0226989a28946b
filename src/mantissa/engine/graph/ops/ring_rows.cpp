#include "mantissa/engine/graph/ops/ring_rows.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "mantissa/engine/graph/key_ring.h"
#include "mantissa/engine/graph/ops/ring_memory.h"
#include "mantissa/kernels/columns.h"

namespace mantissa::graph {

BlockSegments segments_of_block(const Call& c, int block) {
  const std::span<const BlockPiece> pieces = c.ring->pieces(block);
  BlockSegments all;
  auto segment = c.extent.segments.begin();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    while (segment->begin != pieces[i].token) ++segment;
    Segment own = *segment;
    own.slot = pieces[i].of;
    const bool ends = i + 1 == pieces.size() || pieces[i + 1].of != pieces[i].of;
    (ends ? all.last : all.earlier).push_back(own);
  }
  return all;
}

namespace {

/// Calls each(slot, row) with the slot of the segment of a piece and the number of its row, for the first
/// piece of each row in block 0 that continues other tokens, or the last piece in the last block.
template <class Each>
void for_carried(const Call& c, bool first, const Each& each) {
  const KeyRing& ring = *c.ring;
  if (ring.early() != 0) return;  // the same rank has the last block
  const std::span<const BlockPiece> pieces = ring.pieces(first ? 0 : ring.late());
  auto segment = c.extent.segments.begin();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    while (segment->begin != pieces[i].token) ++segment;
    const bool begins = i == 0 || pieces[i - 1].of != pieces[i].of,
               ends = i + 1 == pieces.size() || pieces[i + 1].of != pieces[i].of;
    if (first ? begins && segment->position > 0 : ends) each(segment->slot, pieces[i].of);
  }
}

Matrix writable(const ConstMatrix& m) {
  return {const_cast<void*>(m.data), m.type, m.ld};
}

}  // namespace

void begin_with_carried(const Call& c, const ConstMatrix& carried, Matrix to, std::int64_t width) {
  if (carried.data == nullptr) return;
  for_carried(c, true, [&](std::int64_t slot, std::int64_t row) {
    kernels::copy_columns(c.ctx, 1, width, rows_from(writable(carried), slot), rows_from(to, row));
  });
}

void end_with_carried(const Call& c, const ConstMatrix& from, Matrix carried, std::int64_t width) {
  if (carried.data == nullptr) return;
  for_carried(c, false, [&](std::int64_t slot, std::int64_t row) {
    kernels::copy_columns(c.ctx, 1, width, rows_from(writable(from), row), rows_from(carried, slot));
  });
}

void exchange_rows(const Call& c, bool up, Matrix sent, Matrix received,
                   const std::function<void(int block, Matrix vectors)>& fill) {
  KeyRing& ring = *c.ring;
  const std::int64_t rows = ring.rows();
  Transfers transfers;
  const auto place = [&](const Matrix& all, int block) {
    return rows_from(all, block == ring.early() ? 0 : rows);
  };
  const auto own = [&](int block) { return block == ring.early() || block == ring.late(); };
  std::ranges::fill(bytes_in(received, 2 * rows), std::byte{0});
  for (std::size_t i = 0; static_cast<int>(i) + 1 < ring.blocks(); ++i) {
    const int lower = up ? static_cast<int>(i) : ring.blocks() - 2 - static_cast<int>(i);  // of the boundary
    const int from = up ? lower : lower + 1, to = up ? lower + 1 : lower;
    if (own(from)) {
      const Matrix vectors = place(own(to) ? received : sent, own(to) ? to : from);
      fill(from, vectors);
      if (!own(to)) transfers.start(i, [&] { return ring.send(to, bytes_in(vectors, rows)); });
    } else if (own(to)) {
      transfers.start(i, [&] { return ring.receive(from, bytes_in(place(received, to), rows)); });
    }
  }
  transfers.complete();
}

}  // namespace mantissa::graph
