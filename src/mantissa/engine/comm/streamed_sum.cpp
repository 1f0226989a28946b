#include "mantissa/engine/comm/streamed_sum.h"

#include <algorithm>
#include <cassert>

namespace mantissa::comm {
namespace {

/// Returns the elements of a slice, of which every rank's are in memory at the same time.
std::int64_t slice_of(int ranks, Scalar reduce) {
  return static_cast<std::int64_t>(kStagingBytes / static_cast<std::size_t>(ranks) / kAlignment * kAlignment /
                                   bytes_of(reduce));
}

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

void StreamedSum::begin(std::int64_t step, std::span<ValueCounts> counts) {
  tree_.begin(step);
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
  const kernels::Context serial{.simd = ctx.simd};
  const std::shared_future<void> under_way =
      ranks_.start([serial, this, turn = turn_, added = added_](Messages& m) {
        for (const Added& a : added) {
          if (owners_[a.p] != m.rank()) send(m, a.p, a.sent);
        }
        for (const Added& a : added) {
          if (owners_[a.p] == m.rank()) receive(m, serial, a.p, turn, a.sent);
        }
        m.complete();
      });
  for (const Added& a : added_) under_way_[a.p] = under_way;
  added_.clear();
}

void StreamedSum::send(Messages& m, std::size_t p, Matrix sent) const {
  for (std::int64_t first = 0, count = gradients_[p].count; first < count;) {
    const std::int64_t n = std::min(slice_of(m.size(), sent.type), count - first);
    const Matrix slice = part_of(sent, {first, first + n});
    m.send(owners_[p], {static_cast<const std::byte*>(slice.data), bytes_in(slice, n)});
    first += n;
  }
}

void StreamedSum::receive(Messages& m, const kernels::Context& ctx, std::size_t p, std::int64_t turn,
                          Matrix sent) {
  const std::int64_t count = gradients_[p].count;
  for (std::int64_t first = 0; first < count;) {
    const Part part{first, std::min(count, first + slice_of(m.size(), sent.type))};
    const std::size_t each = aligned(bytes_in(sent, part.count()));
    if (const std::size_t all = each * static_cast<std::size_t>(m.size() - 1); staging_.size() < all)
      staging_ = Storage(all);
    // What waits from earlier turns, and the shards of this one.
    std::vector<ShardSum::Sum> sums;
    for (const ShardRange& shards : pieces_of({0, turn * m.size()}, shards_))
      sums.push_back({shards, part_of(waiting_[p][sums.size()], part)});
    const std::size_t waited = sums.size();
    std::byte* at = staging_.data();
    for (int rank = 0; rank < m.size(); ++rank) {
      sums.push_back({{turn * m.size() + rank, 1}, part_of(sent, part)});
      if (rank == m.rank()) continue;
      sums.back().values.data = at;
      m.receive(rank, {at, bytes_in(sent, part.count())});
      at += each;
    }
    m.complete();
    sums = tree_.add_neighbours(ctx, sums, gradients_[p], part, counts_.empty() ? nullptr : &counts_[p]);
    if (sums.front().shards.count == shards_) {
      tree_.round_sum(ctx, gradients_[p], part, sums.front().values, part_of(gradients_[p].values, part));
    } else {
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const Matrix to = part_of(waiting_[p][i], part);
        if (sums[i].values.data == to.data) continue;
        assert(i + 1 >= waited);  // sums of earlier turns are complete or stay where they are
        std::copy_n(static_cast<const std::byte*>(sums[i].values.data), bytes_in(to, part.count()),
                    static_cast<std::byte*>(to.data));
      }
    }
    first = part.end;
  }
}

std::size_t StreamedSum::bytes(std::span<const Gradient> gradients, std::span<const int> owners, int rank,
                               int ranks, std::int64_t shards, Scalar reduce) {
  std::size_t kept = 0, most = 0;
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    const Gradient& g = gradients[p];
    if (owners[p] != rank) continue;
    kept += aligned(bytes_in(g.values, g.count)) +
            waiting_between_turns(ranks, shards) *
                aligned(static_cast<std::size_t>(g.count) * bytes_of(sum_format(reduce)));
    most = std::max(most, static_cast<std::size_t>(std::min(g.count, slice_of(ranks, reduce))));
  }
  return kept + most * bytes_of(reduce) * static_cast<std::size_t>(ranks - 1);
}

}  // namespace mantissa::comm
