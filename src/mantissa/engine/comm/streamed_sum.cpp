#include "mantissa/engine/comm/streamed_sum.h"

#include <algorithm>

namespace mantissa::comm {
namespace {

Matrix part_of(Matrix whole, Part part) {
  whole.data =
      static_cast<std::byte*>(whole.data) + static_cast<std::size_t>(part.begin) * bytes_of(whole.type);
  return whole;
}

std::size_t bytes_in(Matrix values, std::int64_t count) {
  return static_cast<std::size_t>(count) * bytes_of(values.type);
}

/// Returns the largest number of sums that wait between two turns.
std::size_t waiting_between_turns(int ranks, std::int64_t shards) {
  std::size_t most = 0;
  for (std::int64_t done = ranks; done < shards; done += ranks)
    most = std::max(most, pieces_of({0, done}, shards).size());
  return most;
}

}  // namespace

StreamedSum::StreamedSum(std::vector<Gradient> gradients, std::vector<int> owners, Communicator& ranks,
                         std::int64_t shards, Scalar reduce, Rounding rounding, std::uint64_t seed)
    : ranks_(ranks),
      gradients_(std::move(gradients)),
      owners_(std::move(owners)),
      shards_(shards),
      tree_({}, {0, shards}, shards, reduce, rounding, seed),
      waiting_(gradients_.size()),
      under_way_(gradients_.size()) {
  const std::size_t waiting = waiting_between_turns(ranks.size(), shards);
  std::size_t bytes = 0;
  const auto place = [&](Matrix& values, std::int64_t count) {
    values.data = storage_.data() == nullptr ? nullptr : storage_.data() + bytes;
    bytes += aligned(bytes_in(values, count));
  };
  const auto place_all = [&] {
    bytes = 0;
    for (std::size_t p = 0; p < gradients_.size(); ++p) {
      Gradient& g = gradients_[p];
      g.values.data = nullptr;
      if (owners_[p] != ranks.rank()) continue;
      place(g.values, g.count);
      waiting_[p].assign(waiting, {nullptr, sum_format(reduce), g.values.ld});
      for (Matrix& sum : waiting_[p]) place(sum, g.count);
    }
  };
  place_all();
  storage_ = Storage(bytes);
  place_all();
}

StreamedSum::~StreamedSum() {
  for (const std::shared_future<void>& f : under_way_) {
    if (f.valid()) f.wait();
  }
}

void StreamedSum::begin(std::int64_t step, std::span<ValueCounts> counts) {
  tree_.begin(step);
  added_.clear();  // of a step that did not end
  counts_ = counts;
}

void StreamedSum::add(const kernels::Context& ctx, std::size_t p, Matrix gradient, Matrix sent) {
  Gradient own = gradients_[p];
  own.values = gradient;
  const std::int64_t shard = turn_ * ranks_.size() + ranks_.rank();
  if (!counts_.empty()) tree_.count_leaf(own, shard, counts_[p]);
  tree_.round_leaf(ctx, own, shard, sent);
  added_.push_back({p, sent});
}

void StreamedSum::start(const kernels::Context& ctx) {
  std::vector<std::int64_t> counts;
  for (const Added& a : added_) counts.push_back(gradients_[a.p].count);
  const Scalar format = added_.front().sent.type;
  const kernels::Context serial{.simd = ctx.simd};
  const std::shared_future<void> under_way =
      ranks_.start([serial, this, turn = turn_, added = added_,
                    groups = groups_of(counts, ranks_.size(), format)](Messages& m) {
        for (const std::vector<Slice>& slices : groups) exchange(m, serial, added, slices, turn);
      });
  for (const Added& a : added_) under_way_[a.p] = under_way;
  added_.clear();
}

void StreamedSum::exchange(Messages& m, const kernels::Context& ctx, std::span<const Added> added,
                           std::span<const Slice> slices, std::int64_t turn) {
  const auto others = static_cast<std::size_t>(m.size() - 1);
  std::size_t used = 0;
  for (const Slice& slice : slices) {
    const Added& a = added[slice.parameter];
    if (owners_[a.p] == m.rank()) used += others * aligned(bytes_in(a.sent, slice.elements.count()));
  }
  if (staging_.size() < used) staging_ = Storage(used);
  std::byte* at = staging_.data();
  std::vector<std::vector<Matrix>> of_ranks(slices.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const Added& a = added[slices[i].parameter];
    const Matrix own = part_of(a.sent, slices[i].elements);
    const std::size_t bytes = bytes_in(own, slices[i].elements.count());
    if (owners_[a.p] != m.rank()) {
      m.send(owners_[a.p], {static_cast<const std::byte*>(own.data), bytes});
      continue;
    }
    of_ranks[i].assign(static_cast<std::size_t>(m.size()), own);
    for (int rank = 0; rank < m.size(); ++rank) {
      if (rank == m.rank()) continue;
      of_ranks[i][static_cast<std::size_t>(rank)].data = at;
      m.receive(rank, {at, bytes});
      at += aligned(bytes);
    }
  }
  m.complete();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (!of_ranks[i].empty())
      add_turn(ctx, added[slices[i].parameter].p, slices[i].elements, of_ranks[i], turn);
  }
}

void StreamedSum::add_turn(const kernels::Context& ctx, std::size_t p, Part part,
                           std::span<const Matrix> of_ranks, std::int64_t turn) {
  const std::int64_t ranks = std::ssize(of_ranks);
  // What waits from earlier turns, and the shards of this one.
  std::vector<ShardSum::Sum> sums;
  for (const ShardRange& shards : pieces_of({0, turn * ranks}, shards_))
    sums.push_back({shards, part_of(waiting_[p][sums.size()], part)});
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    sums.push_back({{turn * ranks + rank, 1}, of_ranks[static_cast<std::size_t>(rank)]});
  sums = tree_.add_neighbours(ctx, sums, gradients_[p], part, counts_.empty() ? nullptr : &counts_[p]);
  if (sums.front().shards.count == shards_) {
    tree_.round_sum(ctx, gradients_[p], part, sums.front().values, part_of(gradients_[p].values, part));
    return;
  }
  // Sums of earlier turns are in their places, or part of a sum in the place of an older one.
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const Matrix to = part_of(waiting_[p][i], part);
    if (sums[i].values.data == to.data) continue;
    std::copy_n(static_cast<const std::byte*>(sums[i].values.data), bytes_in(to, part.count()),
                static_cast<std::byte*>(to.data));
  }
}

std::size_t StreamedSum::bytes(std::span<const Gradient> gradients, std::span<const int> owners, int rank,
                               int ranks, std::int64_t shards, Scalar reduce,
                               std::span<const std::vector<std::size_t>> together) {
  const std::size_t each = bytes_of(sum_format(reduce));
  const auto size_of = [&](std::int64_t count) { return aligned(static_cast<std::size_t>(count) * each); };
  std::size_t kept = 0, most = 0;
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    const Gradient& g = gradients[p];
    if (owners[p] != rank) continue;
    kept += aligned(bytes_in(g.values, g.count)) + waiting_between_turns(ranks, shards) * size_of(g.count);
  }
  for (const std::vector<std::size_t>& bucket : together) {
    std::vector<std::int64_t> counts;
    for (const std::size_t p : bucket) counts.push_back(gradients[p].count);
    for (const std::vector<Slice>& slices : groups_of(counts, ranks, reduce)) {
      std::size_t used = 0;
      for (const Slice& slice : slices) {
        if (owners[bucket[slice.parameter]] == rank)
          used += static_cast<std::size_t>(ranks - 1) * size_of(slice.elements.count());
      }
      most = std::max(most, used);
    }
  }
  return kept + most;
}

}  // namespace mantissa::comm
