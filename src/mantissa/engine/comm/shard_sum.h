// Sums the gradients of a batch's shards by a fixed tree in the policy's `reduce` format: those of one rank,
// and those of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <vector>

#include "mantissa/core/numeric/value_counts.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/comm/node_rounding.h"
#include "mantissa/engine/comm/shard_tree.h"
#include "mantissa/kernels/context.h"

namespace mantissa::comm {

/// The gradient of one parameter for the current shard: `count` elements, dense.
struct Gradient {
  Matrix values;
  std::int64_t count = 0;
  std::uint64_t name_hash = 0;  // hash_name() of the parameter: a key of stochastic rounding
};

/// Returns the format in which sums in `reduce` are stored: f32 for tf32.
constexpr Scalar sum_format(Scalar reduce) {
  return reduce == Scalar::tf32 ? Scalar::f32 : reduce;
}

/// Returns the bytes that the sums of one parameter with `count` elements take on a rank.
std::size_t shard_sum_bytes(std::int64_t count, OwnShards own, std::int64_t shards, Scalar reduce);

/// Returns the bytes that one of `ranks` ranks sends for the sum of `count` elements, if each has a power of
/// two of shards: 2 · count · bytes · (ranks − 1) / ranks. This is the mean of the ranks, whose parts are
/// whole cache lines.
std::int64_t sent_bytes(std::int64_t count, std::int64_t ranks, Scalar reduce);

/// The memory that a rank takes for sums of others is at most about twice this.
inline constexpr std::size_t kStagingBytes = std::size_t{16} << 20;

/// Elements [begin, end) of a parameter.
struct Part {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
};
/// Returns the elements of a parameter with `count` that rank `rank` adds: equal shares, of whole cache
/// lines.
Part part_of(int rank, int ranks, std::int64_t count);

/// Elements of one parameter.
struct Slice {
  std::size_t parameter = 0;
  Part elements;
};
/// Returns the slices of parameters with `counts` elements, in the groups that travel together.
std::vector<std::vector<Slice>> groups_of(std::span<const std::int64_t> counts, int ranks, Scalar reduce);
/// Returns the elements of a slice that a rank adds: a share, or all of an owner's.
Part part_of_slice(const Slice& slice, std::span<const int> owners, int rank, int ranks);
/// Returns the bytes that a rank takes for the sums of others, of parameters that start together. `parts` as
/// for shards_of().
std::size_t staging_bytes(std::span<const std::int64_t> counts, std::span<const int> owners, int rank,
                          int ranks, std::int64_t shards, Scalar reduce, std::int64_t parts = 1);

/// Adds shards in sequence. Each gradient is rounded to `reduce`. Neighbours are added as soon as both exist,
/// ((0 + 1) + (2 + 3)) + (4 + 5) for six shards. Each sum is computed in f32 (f64 if reduce is f64) and
/// rounded to `reduce`. The order depends only on the number of shards, and the random bits of a rounding
/// only on random_bits() and the element's index, so the ranks that share the shards change no bit.
class ShardSum {
 public:
  /// `own`: the shards of this rank. `seed`: of the run, for stochastic rounding.
  ShardSum(std::span<const Gradient> gradients, OwnShards own, std::int64_t shards, Scalar reduce,
           Rounding rounding = Rounding::nearest, std::uint64_t seed = 0);
  /// Waits for what is under way, which uses memory of this object and of its callers.
  ~ShardSum() { await(); }
  ShardSum(const ShardSum&) = delete;
  ShardSum& operator=(const ShardSum&) = delete;

  /// The next shards are those of attempt `step`.
  void begin(std::int64_t step);

  /// Adds the complete gradients of shard `shard`, the next one of this rank. After the last of all shards
  /// `gradients` hold their sum.
  /// `counts`, if it is not empty, has an element for each gradient, to which every rounding of it is added:
  /// the value after it, and its error.
  void add(const kernels::Context& ctx, std::span<const Gradient> gradients, std::int64_t shard,
           std::span<ValueCounts> counts = {});

  /// Adds gradient `p` of this rank's last shard before add() adds the others. Then start() may be called.
  void add_early(const kernels::Context& ctx, std::size_t p, const Gradient& gradient,
                 std::span<ValueCounts> counts = {});
  /// Starts to add the sums of all ranks for those that were added since the last call, while the caller goes
  /// on. Every rank calls it for the same ones. `ctx` runs on the thread of `ranks`, and `counts` and `ranks`
  /// must outlive add_ranks().
  void start(const kernels::Context& ctx, Communicator& ranks, std::span<ValueCounts> counts = {});

  /// Gives the sum of each gradient to one rank, its owner, alone.
  void set_owners(std::vector<int> owners) { owners_ = std::move(owners); }

  /// Adds the sums of all ranks, after the last shard of each, so that `gradients` hold those of all shards.
  /// Each rank adds a part of every parameter, and receives the others; owners add theirs. `ctx` runs on the
  /// thread of `ranks`.
  void add_ranks(const kernels::Context& ctx, std::span<const Gradient> gradients, Communicator& ranks,
                 std::span<ValueCounts> counts = {});

  /// A sum of consecutive shards, for some elements of one parameter.
  struct Sum {
    ShardRange shards;
    Matrix values;
  };
  /// Adds neighbours, each pair in the memory of the older one, and returns the sums that are left. `sums`
  /// are those of elements `part` of `gradient`, rounded, in the order of shards.
  std::vector<Sum> add_neighbours(const kernels::Context& ctx, const std::vector<Sum>& sums,
                                  const Gradient& gradient, Part part, ValueCounts* counts) const;
  /// Rounds elements of the complete sum of all shards.
  void round_sum(const kernels::Context& ctx, const Gradient& gradient, Part part, Matrix from,
                 Matrix to) const {
    round_into(ctx, part.count(), from, to, rounding_at({0, shards_}, gradient, part.begin));
  }
  /// Rounds the gradient of a shard, as add() does, and counts that.
  void round_leaf(const kernels::Context& ctx, const Gradient& gradient, std::int64_t shard,
                  Matrix to) const {
    round_into(ctx, gradient.count, gradient.values, to, rounding_at({shard, 1}, gradient));
  }
  void count_leaf(const Gradient& gradient, std::int64_t shard, ValueCounts& counts) const;

 private:
  /// Adds one shard of parameter `p`, in the order of this rank's shards.
  void add_shard(const kernels::Context& ctx, std::size_t p, const Gradient& gradient, std::int64_t shard,
                 ValueCounts* counts) const;
  /// Receives the sums of all ranks for this rank's parts of slices and adds them.
  void add_slices(Messages& m, const kernels::Context& ctx, std::span<const Slice> slices,
                  std::span<ValueCounts> counts);
  void start_groups(const kernels::Context& ctx, std::span<const std::size_t> parameters, Communicator& ranks,
                    std::span<ValueCounts> counts);
  void await() const;
  /// Returns how a node rounds a gradient's elements from `first` on.
  NodeRounding rounding_at(ShardRange node, const Gradient& gradient, std::int64_t first = 0) const;

  OwnShards own_;
  std::int64_t shards_;
  Scalar reduce_;
  Rounding rounding_;
  std::uint64_t seed_;
  std::vector<int> owners_;  // by gradient; empty: all ranks receive the sums
  std::int64_t step_ = 0;
  std::vector<Gradient> gradients_;        // without their values
  std::vector<std::vector<Matrix>> sums_;  // [parameter][waiting sum], the oldest first
  Storage storage_;
  Storage staging_;                 // sums of other ranks
  std::vector<bool> early_;         // by gradient: of add_early()
  std::vector<std::size_t> added_;  // those that start() has not started
  std::vector<std::shared_future<void>> under_way_;
};

}  // namespace mantissa::comm
