// What passes between neighbouring blocks of rows that ranks share: one vector for each row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <span>
#include <vector>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/graph/key_ring.h"
#include "mantissa/engine/graph/op.h"

namespace mantissa::graph {

/// Transfers whose memory must stay until they are complete.
class Transfers {
 public:
  Transfers() = default;
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void add(std::future<void> transfer) { all_.push_back(std::move(transfer)); }
  /// Waits for all of them.
  void complete();

 private:
  std::vector<std::future<void>> all_;
};

/// Returns bytes as a matrix of rows, and the rows from `first` on.
inline Matrix rows_from(Matrix m, std::int64_t first) {
  m.data = static_cast<std::byte*>(m.data) + static_cast<std::size_t>(first * m.ld) * bytes_of(m.type);
  return m;
}
inline std::span<std::byte> bytes_in(const Matrix& m, std::int64_t rows) {
  return {static_cast<std::byte*>(m.data), static_cast<std::size_t>(rows * m.ld) * bytes_of(m.type)};
}

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
