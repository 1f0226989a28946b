#include "mantissa/engine/comm/shard_sum.h"

#include <algorithm>
#include <cassert>
#include <future>
#include <utility>

namespace mantissa::comm {
namespace {

/// Slices of parameters whose sums travel together have about this many bytes, so that those of all ranks
/// together take at most kStagingBytes twice.
std::size_t group_bytes(int ranks) {
  return kStagingBytes / static_cast<std::size_t>(ranks) / kAlignment * kAlignment;
}

std::span<std::byte> bytes_in(Matrix values, Part part) {
  const std::size_t each = bytes_of(values.type);
  return {static_cast<std::byte*>(values.data) + static_cast<std::size_t>(part.begin) * each,
          static_cast<std::size_t>(part.count()) * each};
}

}  // namespace

std::size_t shard_sum_bytes(std::int64_t count, OwnShards own, std::int64_t shards, Scalar reduce) {
  return static_cast<std::size_t>(waiting_sums(own, shards)) *
         aligned(static_cast<std::size_t>(count) * bytes_of(sum_format(reduce)));
}

std::int64_t sent_bytes(std::int64_t count, std::int64_t ranks, Scalar reduce) {
  return 2 * count * static_cast<std::int64_t>(bytes_of(sum_format(reduce))) * (ranks - 1) / ranks;
}

Part part_of(int rank, int ranks, std::int64_t count) {
  constexpr std::int64_t kWhole = 64;  // elements
  const std::int64_t pieces = (count + kWhole - 1) / kWhole;
  const auto at = [&](int r) { return std::min(count, pieces * r / ranks * kWhole); };
  return {at(rank), at(rank + 1)};
}

std::vector<std::vector<Slice>> groups_of(std::span<const std::int64_t> counts, int ranks, Scalar reduce) {
  const std::size_t each = bytes_of(sum_format(reduce)), most = group_bytes(ranks);
  const auto longest = static_cast<std::int64_t>(most / each);  // elements
  std::vector<std::vector<Slice>> groups;
  std::size_t bytes = most;
  for (std::size_t p = 0; p < counts.size(); ++p) {
    for (std::int64_t first = 0; first < counts[p]; first += longest) {
      if (bytes >= most) groups.emplace_back(), bytes = 0;
      groups.back().push_back({p, {first, std::min(counts[p], first + longest)}});
      bytes += static_cast<std::size_t>(groups.back().back().elements.count()) * each;
    }
  }
  return groups;
}

Part part_of_slice(const Slice& slice, std::span<const int> owners, int rank, int ranks) {
  if (!owners.empty()) return owners[slice.parameter] == rank ? slice.elements : Part{};
  const Part part = part_of(rank, ranks, slice.elements.count());
  return {slice.elements.begin + part.begin, slice.elements.begin + part.end};
}

std::size_t staging_bytes(std::span<const std::int64_t> counts, std::span<const int> owners, int rank,
                          int ranks, std::int64_t shards, Scalar reduce, std::int64_t parts) {
  std::size_t most = 0, pieces = 0;
  for (int other = 0; other < ranks; ++other)
    pieces += other == rank ? 0 : pieces_of(shards_of(other, ranks, shards, parts), shards).size();
  for (const std::vector<Slice>& group : groups_of(counts, ranks, reduce)) {
    std::size_t used = 0;
    for (const Slice& slice : group) {
      const Part part = part_of_slice(slice, owners, rank, ranks);
      used += pieces * aligned(static_cast<std::size_t>(part.count()) * bytes_of(sum_format(reduce)));
    }
    most = std::max(most, used);
  }
  return most;
}

ShardSum::ShardSum(std::span<const Gradient> gradients, OwnShards own, std::int64_t shards, Scalar reduce,
                   Rounding rounding, std::uint64_t seed)
    : own_(own),
      shards_(shards),
      reduce_(reduce),
      rounding_(rounding),
      seed_(seed),
      gradients_(gradients.begin(), gradients.end()),
      early_(gradients.size()) {
  for (Gradient& g : gradients_) g.values.data = nullptr;
  std::size_t bytes = 0;
  for (const Gradient& g : gradients) bytes += shard_sum_bytes(g.count, own, shards, reduce);
  storage_ = Storage(bytes);
  std::byte* at = storage_.data();
  for (const Gradient& g : gradients) {
    std::vector<Matrix>& sums = sums_.emplace_back();
    for (std::int64_t i = 0; i < waiting_sums(own, shards); ++i) {
      sums.push_back({at, sum_format(reduce), g.values.ld});
      at += aligned(static_cast<std::size_t>(g.count) * bytes_of(sum_format(reduce)));
    }
  }
}

NodeRounding ShardSum::rounding_at(ShardRange node, const Gradient& gradient, std::int64_t first) const {
  return {reduce_, rounding_, random_bits(seed_, step_, gradient.name_hash, node),
          static_cast<std::uint64_t>(first)};
}

void ShardSum::await() const {
  for (const std::shared_future<void>& f : under_way_) f.wait();
}

void ShardSum::begin(std::int64_t step) {
  await();  // of a step that did not end
  under_way_.clear();
  added_.clear();
  early_.assign(early_.size(), false);
  step_ = step;
}

void ShardSum::add(const kernels::Context& ctx, std::span<const Gradient> gradients, std::int64_t shard,
                   std::span<ValueCounts> counts) {
  assert(gradients.size() == sums_.size());
  if (shards_ == 1) return;
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    if (early_[p]) continue;
    ValueCounts* const of = counts.empty() ? nullptr : &counts[p];
    if (of != nullptr) count_leaf(gradients[p], shard, *of);
    add_shard(ctx, p, gradients[p], shard, of);
  }
}

void ShardSum::add_early(const kernels::Context& ctx, std::size_t p, const Gradient& gradient,
                         std::span<ValueCounts> counts) {
  const std::int64_t last = own_.first + (own_.count - 1) * own_.step;
  ValueCounts* const of = counts.empty() ? nullptr : &counts[p];
  if (of != nullptr) count_leaf(gradient, last, *of);
  add_shard(ctx, p, gradient, last, of);
  early_[p] = true;
  added_.push_back(p);
}

void ShardSum::start(const kernels::Context& ctx, Communicator& ranks, std::span<ValueCounts> counts) {
  start_groups(ctx, std::exchange(added_, {}), ranks, counts);
}

void ShardSum::start_groups(const kernels::Context& ctx, std::span<const std::size_t> parameters,
                            Communicator& ranks, std::span<ValueCounts> counts) {
  std::vector<std::int64_t> sizes;
  for (const std::size_t p : parameters) sizes.push_back(gradients_[p].count);
  for (std::vector<Slice>& slices : groups_of(sizes, ranks.size(), reduce_)) {
    for (Slice& slice : slices) slice.parameter = parameters[slice.parameter];
    under_way_.push_back(ranks.start(
        [=, this, slices = std::move(slices)](Messages& m) { add_slices(m, ctx, slices, counts); }));
  }
}

void ShardSum::count_leaf(const Gradient& gradient, std::int64_t shard, ValueCounts& counts) const {
  count_rounding(gradient.count, nullptr, gradient.values, nullptr, rounding_at({shard, 1}, gradient),
                 counts);
}

void ShardSum::add_shard(const kernels::Context& ctx, std::size_t p, const Gradient& gradient,
                         std::int64_t shard, ValueCounts* counts) const {
  const std::int64_t earlier = (shard - own_.first) / own_.step;  // of this rank
  assert(earlier >= 0 && earlier < own_.count && own_.first + earlier * own_.step == shard);
  const std::vector<ShardRange> waiting = pieces_of({own_.first, earlier, own_.step}, shards_);
  const NodeRounding leaf = rounding_at({shard, 1}, gradient);
  // Like a binary counter: shard 7 completes a pair, a pair of pairs, and a pair of those.
  ShardRange sum{shard, 1};
  Matrix newer = gradient.values;
  for (std::size_t left = waiting.size(); left-- > 0 && are_neighbours(waiting[left], sum, shards_);) {
    const NodeRounding* own = sum.count == 1 ? &leaf : nullptr;
    sum = {waiting[left].first, waiting[left].count + sum.count};
    const Matrix older = sums_[p][left];
    const NodeRounding node = rounding_at(sum, gradient);
    if (counts != nullptr) count_rounding(gradient.count, &older, newer, own, node, *counts);
    const Matrix to = sum.count == shards_ ? gradient.values : older;
    add_into(ctx, gradient.count, older, newer, to, own, node);
    newer = to;
  }
  if (sum.count == 1) round_into(ctx, gradient.count, newer, sums_[p][waiting.size()], leaf);
}

std::vector<ShardSum::Sum> ShardSum::add_neighbours(const kernels::Context& ctx, const std::vector<Sum>& sums,
                                                    const Gradient& gradient, Part part,
                                                    ValueCounts* counts) const {
  std::vector<Sum> waiting;
  for (Sum sum : sums) {
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
  return waiting;
}

void ShardSum::add_slices(Messages& m, const kernels::Context& ctx, std::span<const Slice> slices,
                          std::span<ValueCounts> counts) {
  const int ranks = m.size(), self = m.rank();
  const std::size_t waiting = pieces_of(own_, shards_).size();
  // The sums of every rank for this rank's parts.
  std::vector<std::vector<Sum>> all(slices.size());
  std::size_t used = 0;
  const auto each_sum = [&](const auto& call) {  // (slice, part, rank, index of the sum, shards)
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const Part part = part_of_slice(slices[i], owners_, self, ranks);
      for (int rank = 0; part.count() > 0 && rank < ranks; ++rank) {
        const std::vector<ShardRange> pieces = pieces_of(shards_of(rank, ranks, shards_, own_.step), shards_);
        for (std::size_t j = 0; j < pieces.size(); ++j) call(i, part, rank, j, pieces[j]);
      }
    }
  };
  each_sum([&](std::size_t i, Part part, int rank, std::size_t /*j*/, ShardRange /*shards*/) {
    if (rank != self) used += aligned(bytes_in(sums_[slices[i].parameter].front(), part).size());
  });
  if (staging_.size() < used) staging_ = Storage(used);
  std::byte* at = staging_.data();
  each_sum([&](std::size_t i, Part part, int rank, std::size_t j, ShardRange shards) {
    Matrix values = sums_[slices[i].parameter][j];
    const std::span<std::byte> own = bytes_in(values, part);
    values.data = rank == self ? own.data() : at;
    if (rank != self) {
      m.receive(rank, {at, own.size()});
      at += aligned(own.size());
    }
    all[i].push_back({shards, values});
  });
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Slice& slice : slices) {
      for (std::size_t j = 0; rank != self && j < waiting; ++j)
        m.send(rank, bytes_in(sums_[slice.parameter][j], part_of_slice(slice, owners_, rank, ranks)));
    }
  }
  m.complete();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const std::size_t p = slices[i].parameter;
    const Part part = part_of_slice(slices[i], owners_, self, ranks);
    if (part.count() == 0) continue;
    std::ranges::sort(all[i], {}, [](const Sum& sum) { return sum.shards.first; });
    const std::vector<Sum> whole =
        add_neighbours(ctx, all[i], gradients_[p], part, counts.empty() ? nullptr : &counts[p]);
    assert(whole.size() == 1 && whole.front().shards.count == shards_);
    const Matrix sum = whole.front().values;
    const std::span<std::byte> own = bytes_in(sums_[p].front(), part);
    if (sum.data != own.data()) std::copy_n(static_cast<const std::byte*>(sum.data), own.size(), own.data());
  }
  if (!owners_.empty()) return;
  for (const Slice& slice : slices) {
    const Matrix sum = sums_[slice.parameter].front();
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == self) continue;
      m.send(rank, bytes_in(sum, part_of_slice(slice, owners_, self, ranks)));
      m.receive(rank, bytes_in(sum, part_of_slice(slice, owners_, rank, ranks)));
    }
  }
  m.complete();
}

void ShardSum::add_ranks(const kernels::Context& ctx, std::span<const Gradient> gradients,
                         Communicator& ranks, std::span<ValueCounts> counts) {
  if (ranks.alone()) return;
  start(ctx, ranks, counts);
  std::vector<std::size_t> left;
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    if (!early_[p]) left.push_back(p);
  }
  start_groups(ctx, left, ranks, counts);
  for (const std::shared_future<void>& f : under_way_) f.get();
  under_way_.clear();
  early_.assign(early_.size(), false);
  // This converts what is rounded.
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    if (!owners_.empty() && owners_[p] != ranks.rank()) continue;
    round_into(ctx, gradients[p].count, sums_[p].front(), gradients[p].values,
               rounding_at({0, shards_}, gradients[p]));
  }
}

}  // namespace mantissa::comm
