// Sums of gradients that leave for their owners while the backward phase still computes others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/comm/shard_sum.h"

namespace mantissa::comm {

/// Adds the shards of a batch by the tree of ShardSum, with its bits. The ranks run neighbouring shards at
/// the same time: in turn t, rank r of R has shard t·R + r. A rank keeps sums of its own parameters alone:
/// one, and those that wait for later turns.
class StreamedSum {
 public:
  /// `gradients` are those of all parameters; their `values` tell the format of the sums alone. `owners` are
  /// by gradient. `ranks` must outlive this object.
  StreamedSum(std::vector<Gradient> gradients, std::vector<int> owners, Communicator& ranks,
              std::int64_t shards, Scalar reduce, Rounding rounding, std::uint64_t seed);
  /// Waits for what is under way, which uses memory of this object and of its callers.
  ~StreamedSum();
  StreamedSum(const StreamedSum&) = delete;
  StreamedSum& operator=(const StreamedSum&) = delete;

  /// The next shards are those of attempt `step`. `counts` is that of ShardSum::add().
  void begin(std::int64_t step, std::span<ValueCounts> counts);
  void set_turn(std::int64_t turn) { turn_ = turn; }

  /// Rounds the complete gradient `p` of this rank's shard to `sent`, in `reduce`. The gradient may change
  /// then.
  void add(const kernels::Context& ctx, std::size_t p, Matrix gradient, Matrix sent);
  /// Starts the way of those that were added since the last call to their owners, in both directions of a
  /// link at the same time. `sent` must stay as it is until await() returns.
  void start(const kernels::Context& ctx);
  void await(std::size_t p) { under_way_[p].get(); }

  /// Returns the sum of gradient `p`, which is complete after the last turn. Its data are null on ranks that
  /// do not own it.
  Matrix sum(std::size_t p) const { return gradients_[p].values; }

  /// Returns the bytes that a rank takes for the gradients that it owns, and for those of others. `together`
  /// are those that start together.
  static std::size_t bytes(std::span<const Gradient> gradients, std::span<const int> owners, int rank,
                           int ranks, std::int64_t shards, Scalar reduce,
                           std::span<const std::vector<std::size_t>> together);

 private:
  Communicator& ranks_;
  std::vector<Gradient> gradients_;  // of the sums
  std::vector<int> owners_;
  std::int64_t shards_;
  ShardSum tree_;                             // its roundings
  Storage storage_;                           // of the sums
  std::vector<std::vector<Matrix>> waiting_;  // [gradient][sum that waits for a later turn]
  Storage staging_;                           // gradients of other ranks
  std::int64_t turn_ = 0;
  std::span<ValueCounts> counts_;
  /// A gradient that was added.
  struct Added {
    std::size_t p = 0;
    Matrix sent;
  };
  /// Sends and receives some slices of added gradients, and adds the shards of a turn for those that this
  /// rank owns. Every rank calls it for the same slices, so that no message waits for another one.
  void exchange(Messages& m, const kernels::Context& ctx, std::span<const Added> added,
                std::span<const Slice> slices, std::int64_t turn);
  /// Adds the shards of a turn for elements `part` of a gradient. `of_ranks` has them by rank.
  void add_turn(const kernels::Context& ctx, std::size_t p, Part part, std::span<const Matrix> of_ranks,
                std::int64_t turn);

  std::vector<Added> added_;
  std::vector<std::shared_future<void>> under_way_;  // by gradient
};

}  // namespace mantissa::comm
