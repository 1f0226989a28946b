// Gradients of the shards of a batch, summed by a fixed tree in the policy's `reduce` format: what ranks that
// each own some shards would communicate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/kernels/context.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::comm {

/// One parameter's, of the shard at hand: `count` elements, dense.
struct Gradient {
  Matrix values;
  std::int64_t count = 0;
};

/// Sums that wait for their neighbours, at most, while `shards` shards are added.
std::int64_t waiting_sums(std::int64_t shards);

/// Bytes of those of one parameter with `count` elements.
std::size_t shard_sum_bytes(std::int64_t count, std::int64_t shards, Scalar reduce);

/// Shards come one after the other. Each gradient is rounded to nearest to `reduce`; neighbours are added as
/// soon as both are there, ((0 + 1) + (2 + 3)) + (4 + 5) for six, each sum formed in f32 (f64 where reduce is
/// f64) and rounded to `reduce`. The order depends on the number of shards alone.
class ShardSum {
 public:
  ShardSum(std::span<const Gradient> gradients, std::int64_t shards, Scalar reduce);

  /// The gradients of shard `shard` (0, 1, …) are complete. After the last one they hold the sum of all.
  void add(const kernels::Context& ctx, std::span<const Gradient> gradients, std::int64_t shard);

 private:
  std::int64_t shards_;
  Scalar reduce_;
  std::size_t waiting_ = 0;                // sums in use
  std::vector<std::vector<Matrix>> sums_;  // [parameter][waiting sum], the oldest first
  Storage storage_;
};

}  // namespace mantissa::comm
