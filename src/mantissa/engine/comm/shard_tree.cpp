#include "mantissa/engine/comm/shard_tree.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace mantissa::comm {
namespace {

/// Adds `own` one by one. Calls each(sums) after every shard.
template <class Each>
void add_all(OwnShards own, std::int64_t shards, const Each& each) {
  std::vector<ShardRange> sums;
  for (std::int64_t i = 0; i < own.count; ++i) {
    sums.push_back({own.first + i * own.step, 1});
    while (sums.size() > 1 && are_neighbours(sums[sums.size() - 2], sums.back(), shards)) {
      sums[sums.size() - 2].count += sums.back().count;
      sums.pop_back();
    }
    each(sums);
  }
}

}  // namespace

OwnShards shards_of(int rank, int ranks, std::int64_t shards, std::int64_t parts) {
  const std::int64_t each = shards / ranks, group = rank / parts;
  return {group * each * parts + rank % parts, each, parts};
}

bool are_neighbours(ShardRange left, ShardRange right, std::int64_t shards) {
  return std::has_single_bit(static_cast<std::uint64_t>(left.count)) && left.first % (2 * left.count) == 0 &&
         right.first == left.end() && right.end() == std::min(left.first + 2 * left.count, shards);
}

std::vector<ShardRange> pieces_of(OwnShards own, std::int64_t shards) {
  std::vector<ShardRange> last;
  add_all(own, shards, [&](const std::vector<ShardRange>& sums) { last = sums; });
  return last;
}

std::int64_t waiting_sums(OwnShards own, std::int64_t shards) {
  std::size_t most = 0;
  add_all(own, shards, [&](const std::vector<ShardRange>& sums) {
    if (sums.front().count < shards) most = std::max(most, sums.size());
  });
  return static_cast<std::int64_t>(most);
}

}  // namespace mantissa::comm
