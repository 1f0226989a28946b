// Sums the gradients of a batch's shards by a fixed tree in the policy's `reduce` format: those of one rank,
// and those of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/core/numeric/value_counts.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/comm/shard_tree.h"
#include "mantissa/kernels/context.h"

namespace mantissa::comm {

/// The gradient of one parameter for the current shard: `count` elements, dense.
struct Gradient {
  Matrix values;
  std::int64_t count = 0;
};

/// Returns the bytes that the sums of one parameter with `count` elements take on a rank.
std::size_t shard_sum_bytes(std::int64_t count, ShardRange own, std::int64_t shards, Scalar reduce);

/// Elements [begin, end) of a parameter.
struct Part {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
};
/// Returns the elements of a parameter with `count` that rank `rank` adds: equal shares, of whole cache
/// lines.
Part part_of(int rank, int ranks, std::int64_t count);

/// Adds shards in sequence. Each gradient is rounded to nearest in `reduce`. Neighbours are added as soon as
/// both exist, ((0 + 1) + (2 + 3)) + (4 + 5) for six shards. Each sum is computed in f32 (f64 if reduce is
/// f64) and rounded to `reduce`. The order depends only on the number of shards, so the ranks that share them
/// change no bit.
class ShardSum {
 public:
  /// `own`: the shards of this rank.
  ShardSum(std::span<const Gradient> gradients, ShardRange own, std::int64_t shards, Scalar reduce);

  /// Adds the complete gradients of shard `shard`, the next one of this rank. After the last of all shards
  /// `gradients` hold their sum.
  /// `counts`, if it is not empty, has an element for each gradient, to which every rounding of it is added:
  /// the value after it, and its error.
  void add(const kernels::Context& ctx, std::span<const Gradient> gradients, std::int64_t shard,
           std::span<ValueCounts> counts = {});

  /// Adds the sums of all ranks, after the last shard of each, so that `gradients` hold those of all shards.
  /// Each rank adds a part of every parameter, and receives the others. `ctx` runs on the thread of `ranks`.
  void add_ranks(const kernels::Context& ctx, std::span<const Gradient> gradients, Communicator& ranks,
                 std::span<ValueCounts> counts = {});

 private:
  /// Sums of one parameter, of consecutive shards.
  struct Sum {
    ShardRange shards;
    Matrix values;
  };
  /// Receives the sums of all ranks for this rank's part of parameters [first, last) and adds them.
  void add_parts(Messages& m, const kernels::Context& ctx, std::size_t first, std::size_t last,
                 std::span<const Gradient> gradients, std::span<ValueCounts> counts);
  /// Adds neighbours until one sum is left, which it returns.
  Matrix join(const kernels::Context& ctx, std::vector<Sum> sums, std::int64_t count,
              ValueCounts* counts) const;

  ShardRange own_;
  std::int64_t shards_;
  Scalar reduce_;
  std::vector<ShardRange> waiting_;        // shards of the sums in use
  std::vector<std::vector<Matrix>> sums_;  // [parameter][waiting sum], the oldest first
  Storage storage_;
  Storage staging_;  // sums of other ranks
};

}  // namespace mantissa::comm
