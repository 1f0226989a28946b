#include "mantissa/engine/comm/shard_sum.h"

#include <algorithm>
#include <cassert>
#include <future>
#include <utility>

namespace mantissa::comm {
namespace {

/// The storage format of a sum; tf32 is stored as f32.
Scalar stored(Scalar reduce) {
  return reduce == Scalar::tf32 ? Scalar::f32 : reduce;
}

/// Groups of parameters whose sums travel together have at most this many bytes, so that memory for those of
/// other ranks stays small.
constexpr std::size_t kGroupBytes = std::size_t{32} << 20;

std::span<std::byte> bytes_in(Matrix values, Part part) {
  const std::size_t each = bytes_of(values.type);
  return {static_cast<std::byte*>(values.data) + static_cast<std::size_t>(part.begin) * each,
          static_cast<std::size_t>(part.count()) * each};
}

}  // namespace

std::size_t shard_sum_bytes(std::int64_t count, ShardRange own, std::int64_t shards, Scalar reduce) {
  return static_cast<std::size_t>(waiting_sums(own, shards)) *
         aligned(static_cast<std::size_t>(count) * bytes_of(stored(reduce)));
}

std::int64_t sent_bytes(std::int64_t count, std::int64_t ranks, Scalar reduce) {
  return 2 * count * static_cast<std::int64_t>(bytes_of(stored(reduce))) * (ranks - 1) / ranks;
}

Part part_of(int rank, int ranks, std::int64_t count) {
  constexpr std::int64_t kWhole = 64;  // elements
  const std::int64_t pieces = (count + kWhole - 1) / kWhole;
  const auto at = [&](int r) { return std::min(count, pieces * r / ranks * kWhole); };
  return {at(rank), at(rank + 1)};
}

ShardSum::ShardSum(std::span<const Gradient> gradients, ShardRange own, std::int64_t shards, Scalar reduce,
                   Rounding rounding, std::uint64_t seed)
    : own_(own), shards_(shards), reduce_(reduce), rounding_(rounding), seed_(seed) {
  std::size_t bytes = 0;
  for (const Gradient& g : gradients) bytes += shard_sum_bytes(g.count, own, shards, reduce);
  storage_ = Storage(bytes);
  std::byte* at = storage_.data();
  for (const Gradient& g : gradients) {
    std::vector<Matrix>& sums = sums_.emplace_back();
    for (std::int64_t i = 0; i < waiting_sums(own, shards); ++i) {
      sums.push_back({at, stored(reduce), g.values.ld});
      at += aligned(static_cast<std::size_t>(g.count) * bytes_of(stored(reduce)));
    }
  }
}

NodeRounding ShardSum::rounding_at(ShardRange node, const Gradient& gradient, std::int64_t first) const {
  return {reduce_, rounding_, random_bits(seed_, step_, gradient.name_hash, node),
          static_cast<std::uint64_t>(first)};
}

void ShardSum::add(const kernels::Context& ctx, std::span<const Gradient> gradients, std::int64_t shard,
                   std::span<ValueCounts> counts) {
  assert(shard >= own_.first && shard < own_.end() && gradients.size() == sums_.size());
  if (shards_ == 1) return;
  if (shard == own_.first) waiting_.clear();  // an interrupted step may have left sums
  // Like a binary counter: shard 7 completes a pair, a pair of pairs, and a pair of those.
  ShardRange sum{shard, 1};
  std::size_t joins = 0;
  for (; joins < waiting_.size(); ++joins) {
    const ShardRange left = waiting_[waiting_.size() - 1 - joins];
    if (!are_neighbours(left, sum, shards_)) break;
    sum = {left.first, left.count + sum.count};
  }
  const bool whole = sum.count == shards_;
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    const Gradient& gradient = gradients[p];
    const NodeRounding leaf = rounding_at({shard, 1}, gradient);
    if (!counts.empty()) count_rounding(gradient.count, nullptr, gradient.values, nullptr, leaf, counts[p]);
    if (joins == 0) round_into(ctx, gradient.count, gradient.values, sums_[p][waiting_.size()], leaf);
    Matrix newer = gradient.values;
    for (std::size_t j = 1; j <= joins; ++j) {
      const Matrix older = sums_[p][waiting_.size() - j];
      const std::int64_t begin = waiting_[waiting_.size() - j].first;
      const NodeRounding node = rounding_at({begin, shard + 1 - begin}, gradient);
      const NodeRounding* own = j == 1 ? &leaf : nullptr;
      if (!counts.empty()) count_rounding(gradient.count, &older, newer, own, node, counts[p]);
      const Matrix to = whole && j == joins ? gradient.values : older;
      add_into(ctx, gradient.count, older, newer, to, own, node);
      newer = to;
    }
  }
  waiting_.resize(waiting_.size() - joins);
  waiting_.push_back(sum);
}

Matrix ShardSum::join(const kernels::Context& ctx, std::vector<Sum> sums, const Gradient& gradient, Part part,
                      ValueCounts* counts) const {
  std::vector<Sum> waiting;
  for (Sum& sum : sums) {
    for (; !waiting.empty() && are_neighbours(waiting.back().shards, sum.shards, shards_);
         waiting.pop_back()) {
      const Sum& older = waiting.back();
      const ShardRange both = {older.shards.first, older.shards.count + sum.shards.count};
      const NodeRounding node = rounding_at(both, gradient, part.begin);
      if (counts != nullptr) count_rounding(part.count(), &older.values, sum.values, nullptr, node, *counts);
      add_into(ctx, part.count(), older.values, sum.values, older.values, nullptr, node);
      sum = {both, older.values};
    }
    waiting.push_back(sum);
  }
  assert(waiting.size() == 1 && waiting.front().shards.count == shards_);
  return waiting.front().values;
}

void ShardSum::add_parts(Messages& m, const kernels::Context& ctx, std::size_t first, std::size_t last,
                         std::span<const Gradient> gradients, std::span<ValueCounts> counts) {
  const int ranks = m.size(), self = m.rank();
  // The sums of every rank for this rank's part, in the order of shards.
  std::vector<std::vector<Sum>> all(last - first);
  std::size_t used = 0;
  const auto each_sum = [&](const auto& call) {  // (parameter, part, rank, index of the sum, shards)
    for (std::size_t p = first; p < last; ++p) {
      const Part part = part_of(self, ranks, gradients[p].count);
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<ShardRange> pieces = pieces_of(shards_of(rank, ranks, shards_), shards_);
        for (std::size_t i = 0; i < pieces.size(); ++i) call(p, part, rank, i, pieces[i]);
      }
    }
  };
  each_sum([&](std::size_t p, Part part, int rank, std::size_t /*i*/, ShardRange /*shards*/) {
    if (rank != self) used += aligned(bytes_in(sums_[p].front(), part).size());
  });
  if (staging_.size() < used) staging_ = Storage(used);
  std::byte* at = staging_.data();
  each_sum([&](std::size_t p, Part part, int rank, std::size_t i, ShardRange shards) {
    Matrix values = sums_[p][i];
    const std::span<std::byte> own = bytes_in(values, part);
    values.data = rank == self ? own.data() : at;
    if (rank != self) {
      m.receive(rank, {at, own.size()});
      at += aligned(own.size());
    }
    all[p - first].push_back({shards, values});
  });
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t p = first; rank != self && p < last; ++p) {
      for (std::size_t i = 0; i < waiting_.size(); ++i)
        m.send(rank, bytes_in(sums_[p][i], part_of(rank, ranks, gradients[p].count)));
    }
  }
  m.complete();
  for (std::size_t p = first; p < last; ++p) {
    const Part part = part_of(self, ranks, gradients[p].count);
    if (part.count() == 0) continue;
    const Matrix sum =
        join(ctx, std::move(all[p - first]), gradients[p], part, counts.empty() ? nullptr : &counts[p]);
    const std::span<std::byte> own = bytes_in(sums_[p].front(), part);
    if (sum.data != own.data()) std::copy_n(static_cast<const std::byte*>(sum.data), own.size(), own.data());
  }
  for (std::size_t p = first; p < last; ++p) {
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == self) continue;
      m.send(rank, bytes_in(sums_[p].front(), part_of(self, ranks, gradients[p].count)));
      m.receive(rank, bytes_in(sums_[p].front(), part_of(rank, ranks, gradients[p].count)));
    }
  }
  m.complete();
  // This converts what is rounded.
  for (std::size_t p = first; p < last; ++p) {
    round_into(ctx, gradients[p].count, sums_[p].front(), gradients[p].values,
               rounding_at({0, shards_}, gradients[p]));
  }
}

void ShardSum::add_ranks(const kernels::Context& ctx, std::span<const Gradient> gradients,
                         Communicator& ranks, std::span<ValueCounts> counts) {
  if (ranks.alone()) return;
  std::vector<std::future<void>> groups;
  for (std::size_t first = 0, last = 0; first < gradients.size(); first = last) {
    std::size_t bytes = 0;
    do {
      bytes += shard_sum_bytes(gradients[last++].count, own_, shards_, reduce_);
    } while (last < gradients.size() && bytes < kGroupBytes);
    groups.push_back(
        ranks.start([=, this](Messages& m) { add_parts(m, ctx, first, last, gradients, counts); }));
  }
  for (std::future<void>& group : groups) group.get();
}

}  // namespace mantissa::comm
