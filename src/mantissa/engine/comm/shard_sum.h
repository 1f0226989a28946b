// Sums the gradients of a batch's shards by a fixed tree in the policy's `reduce` format. Ranks that each own
// some shards would communicate these sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/core/numeric/value_counts.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::comm {

/// The gradient of one parameter for the current shard: `count` elements, dense.
struct Gradient {
  Matrix values;
  std::int64_t count = 0;
};

/// Returns the largest number of sums that wait for their neighbours while `shards` shards are added.
std::int64_t waiting_sums(std::int64_t shards);

/// Returns the bytes of these sums for one parameter with `count` elements.
std::size_t shard_sum_bytes(std::int64_t count, std::int64_t shards, Scalar reduce);

/// Adds shards in sequence. Each gradient is rounded to nearest in `reduce`. Neighbours are added as soon as
/// both exist, ((0 + 1) + (2 + 3)) + (4 + 5) for six shards. Each sum is computed in f32 (f64 if reduce is
/// f64) and rounded to `reduce`. The order depends only on the number of shards.
class ShardSum {
 public:
  ShardSum(std::span<const Gradient> gradients, std::int64_t shards, Scalar reduce);

  /// Adds the complete gradients of shard `shard` (0, 1, …). After the last shard `gradients` hold the sum of
  /// all.
  /// `counts`, if it is not empty, has an element for each gradient, to which every rounding of it is added:
  /// the value after it, and its error.
  void add(const kernels::Context& ctx, std::span<const Gradient> gradients, std::int64_t shard,
           std::span<ValueCounts> counts = {});

 private:
  std::int64_t shards_;
  Scalar reduce_;
  std::size_t waiting_ = 0;                // sums in use
  std::vector<std::vector<Matrix>> sums_;  // [parameter][waiting sum], the oldest first
  Storage storage_;
};

}  // namespace mantissa::comm
