// The tokens of a row that other ranks have, for ops in which they meet (sequence parallelism). Liu et al.,
// Ring Attention (2023, arXiv:2310.01889).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <span>
#include <vector>

namespace mantissa::graph {

/// The tokens of one document in a block.
struct BlockPiece {
  std::int64_t row = 0;  // of the first one, among the tokens that the block has of all rows
  std::int64_t length = 0;
  std::int64_t position = 0;  // of the first one in its document
  std::int64_t document = 0;  // the same number for all pieces of a document, ascending within a block
  std::int64_t token = 0;     // of the first one on the token axis of the rank that has the block
  std::int64_t of = 0;        // the number of its row in the micro-batch
};

/// S ranks share the rows of a micro-batch. A row has 2·S blocks of consecutive tokens; part p of the ranks
/// has blocks p and 2·S − 1 − p, an early and a late one, so that all have equally many pairs of a query and
/// an earlier key.
class KeyRing {
 public:
  virtual ~KeyRing() = default;
  virtual int part() const = 0;
  virtual int parts() const = 0;
  /// Returns the number of rows of the current micro-batch.
  virtual std::int64_t rows() const = 0;
  /// Returns the pieces of a block in all rows of the current micro-batch.
  virtual std::span<const BlockPiece> pieces(int block) const = 0;

  /// Sends `bytes` of a block on its way from its owner, or receives them and passes them on. Ranks with a
  /// block that is not earlier call it, in ascending order of blocks. `bytes` must stay as they are until the
  /// result is ready.
  virtual std::future<void> pass(int block, std::span<std::byte> bytes) = 0;
  /// Brings to the owner of a block what later blocks contribute to it. The same ranks call it, in ascending
  /// order of blocks. `own` are the contributions of this rank's later blocks, in their order. On the owner,
  /// add(bytes) is called on another thread, in ascending order of the blocks that contribute; those of other
  /// ranks are received into `other`.
  virtual std::future<void> collect(int block, std::vector<std::span<std::byte>> own,
                                    std::span<std::byte> other,
                                    std::function<void(std::span<const std::byte>)> add) = 0;

  /// Send bytes to the owner of a block, and receive them from it: another rank. Ranks call them for all
  /// boundaries between blocks in ascending or in descending order.
  virtual std::future<void> send(int block, std::span<const std::byte> bytes) = 0;
  virtual std::future<void> receive(int block, std::span<std::byte> bytes) = 0;

  int blocks() const { return 2 * parts(); }
  int owner(int block) const { return block < parts() ? block : blocks() - 1 - block; }
  /// Returns this rank's blocks.
  int early() const { return part(); }
  int late() const { return blocks() - 1 - part(); }
};

}  // namespace mantissa::graph
