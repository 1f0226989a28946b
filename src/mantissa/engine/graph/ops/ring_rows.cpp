#include "mantissa/engine/graph/ops/ring_rows.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "mantissa/engine/graph/key_ring.h"
#include "mantissa/engine/graph/ops/ring_memory.h"

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
