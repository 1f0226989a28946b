// The ring of ranks that share the tokens of rows: blocks of keys and values go from neighbour to neighbour.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/graph/key_ring.h"

namespace mantissa::train {

/// A row of which each rank has a part.
struct SharedRow {
  std::int64_t length = 0;
  std::vector<std::int64_t> documents;  // their lengths; empty: one
};

/// Rank r of R has part r mod `parts`; neighbours share rows. A block travels from its owner to both sides,
/// where ranks need it: early blocks to all others, late ones to those with later late blocks.
class KeyRing final : public graph::KeyRing {
 public:
  /// `ranks` must outlive this object; their number is a multiple of `parts`.
  KeyRing(comm::Communicator& ranks, int parts);

  /// Sets the rows of the micro-batch that runs next. This rank's tokens are the early and the late block of
  /// each row, row by row.
  void set_rows(std::span<const SharedRow> rows);

  int part() const override { return part_; }
  int parts() const override { return parts_; }
  std::span<const graph::BlockPiece> pieces(int block) const override {
    return pieces_[static_cast<std::size_t>(block)];
  }
  std::int64_t rows() const override { return rows_; }
  std::future<void> pass(int block, std::span<std::byte> bytes) override;
  std::future<void> collect(int block, std::vector<std::span<std::byte>> own, std::span<std::byte> other,
                            std::function<void(std::span<const std::byte>)> add) override;
  std::future<void> send(int block, std::span<const std::byte> bytes) override;
  std::future<void> receive(int block, std::span<std::byte> bytes) override;

 private:
  comm::Communicator& ranks_;
  int parts_, part_, first_;  // first_: the rank with part 0
  std::int64_t rows_ = 0;
  std::vector<std::vector<graph::BlockPiece>> pieces_;  // by block
};

}  // namespace mantissa::train
