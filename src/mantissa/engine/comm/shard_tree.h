// The tree by which the shards of a batch are added: the largest power of two below their number on the left,
// the rest on the right, and so on. It depends on nothing but the number of shards.
#pragma once

#include <cstdint>
#include <vector>

namespace mantissa::comm {

/// Consecutive shards.
struct ShardRange {
  std::int64_t first = 0, count = 0;
  std::int64_t end() const { return first + count; }
  bool operator==(const ShardRange&) const = default;
};

/// The shards that one rank runs: every `step`-th one from `first` on.
struct OwnShards {
  std::int64_t first = 0, count = 0, step = 1;
};

/// Returns the shards of rank `rank`; their number is a multiple of that of ranks. With `parts` above 1,
/// neighbouring ranks have a part of the same rows each: shard s · parts + p is part p of the rows of shard
/// s.
OwnShards shards_of(int rank, int ranks, std::int64_t shards, std::int64_t parts = 1);

/// Returns true if the tree of `shards` shards has a node with these two below it.
bool are_neighbours(ShardRange left, ShardRange right, std::int64_t shards);

/// Returns the sums that remain when `own` is added as far as the tree allows, in their order: one, the
/// whole, for all shards.
std::vector<ShardRange> pieces_of(OwnShards own, std::int64_t shards);

/// Returns the largest number of sums that wait for their neighbours at one time while `own` is added one by
/// one, with those that remain. Of all shards the last one need not wait.
std::int64_t waiting_sums(OwnShards own, std::int64_t shards);

}  // namespace mantissa::comm
