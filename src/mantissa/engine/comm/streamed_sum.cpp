#include "mantissa/engine/comm/streamed_sum.h"

#include <algorithm>

namespace mantissa::comm {
namespace {

/// Returns the elements of a slice, of which every rank's are in memory at the same time.
std::int64_t slice_of(int ranks, Scalar reduce) {
  return static_cast<std::int64_t>(kStagingBytes / static_cast<std::size_t>(ranks) / kAlignment * kAlignment /
                                   bytes_of(reduce));
}

Matrix part_of(Matrix whole, Part part) {
  whole.data = static_cast<std::byte*>(whole.data) + static_cast<std::size_t>(part.begin) * bytes_of(whole.type);
  return whole;
}

std::size_t bytes_in(Matrix values, std::int64_t count) {
  return static_cast<std::size_t>(count) * bytes_of(values.type);
}

/// Returns the gradients with no elements in those of other ranks.
std::vector<Gradient> owned(std::vector<Gradient> gradients, std::span<const int> owners, int rank) {
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    if (owners[p] != rank) gradients[p].count = 0;
  }
  return gradients;
}

}  // namespace

StreamedSum::StreamedSum(std::vector<Gradient> gradients, std::vector<int> owners, Communicator& ranks,
                         std::int64_t shards, Scalar reduce, Rounding rounding, std::uint64_t seed)
    : ranks_(ranks),
      gradients_(std::move(gradients)),
      owners_(std::move(owners)),
      shards_(shards),
      sums_(owned(gradients_, owners_, ranks.rank()), {0, shards}, shards, reduce, rounding, seed),
      under_way_(gradients_.size()) {
  std::size_t bytes = 0;
  for (const Gradient& g : owned(gradients_, owners_, ranks.rank())) bytes += aligned(bytes_in(g.values, g.count));
  storage_ = Storage(bytes);
  std::byte* at = storage_.data();
  for (std::size_t p = 0; p < gradients_.size(); ++p) {
    Gradient& g = gradients_[p];
    g.values.data = owners_[p] == ranks.rank() ? at : nullptr;
    if (g.values.data != nullptr) at += aligned(bytes_in(g.values, g.count));
  }
}

void StreamedSum::begin(std::int64_t step, std::span<ValueCounts> counts) {
  sums_.begin(step);
  counts_ = counts;
}

void StreamedSum::start(const kernels::Context& ctx, std::size_t p, Matrix gradient, Matrix sent) {
  Gradient own = gradients_[p];
  own.values = gradient;
  const std::int64_t shard = turn_ * ranks_.size() + ranks_.rank();
  if (!counts_.empty()) sums_.count_leaf(own, shard, counts_[p]);
  sums_.round_leaf(ctx, own, shard, sent);
  const kernels::Context serial{.simd = ctx.simd};
  under_way_[p] = ranks_.start([=, this, turn = turn_](Messages& m) {
    if (owners_[p] == m.rank()) return receive(m, serial, p, turn, sent);
    for (std::int64_t first = 0, count = gradients_[p].count; first < count;) {
      const std::int64_t n = std::min(slice_of(m.size(), sent.type), count - first);
      const Matrix slice = part_of(sent, {first, first + n});
      m.send(owners_[p], {static_cast<const std::byte*>(slice.data), bytes_in(slice, n)});
      first += n;
    }
    m.complete();
  });
}

void StreamedSum::receive(Messages& m, const kernels::Context& ctx, std::size_t p, std::int64_t turn,
                          Matrix sent) {
  const std::int64_t count = gradients_[p].count;
  for (std::int64_t first = 0; first < count;) {
    const Part part{first, std::min(count, first + slice_of(m.size(), sent.type))};
    const std::size_t each = aligned(bytes_in(sent, part.count()));
    if (const std::size_t all = each * static_cast<std::size_t>(m.size() - 1); staging_.size() < all)
      staging_ = Storage(all);
    std::vector<Matrix> of_rank(static_cast<std::size_t>(m.size()), part_of(sent, part));
    std::byte* at = staging_.data();
    for (int rank = 0; rank < m.size(); ++rank) {
      if (rank == m.rank()) continue;
      of_rank[static_cast<std::size_t>(rank)].data = at;
      m.receive(rank, {at, bytes_in(sent, part.count())});
      at += each;
    }
    m.complete();
    for (int rank = 0; rank < m.size(); ++rank) {
      sums_.add_shard(ctx, p, gradients_[p], part, of_rank[static_cast<std::size_t>(rank)],
                      turn * m.size() + rank, counts_.empty() ? nullptr : &counts_[p]);
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
    kept += aligned(bytes_in(g.values, g.count)) + shard_sum_bytes(g.count, {0, shards}, shards, reduce);
    most = std::max(most, static_cast<std::size_t>(std::min(g.count, slice_of(ranks, reduce))));
  }
  return kept + most * bytes_of(reduce) * static_cast<std::size_t>(ranks - 1);
}

}  // namespace mantissa::comm
