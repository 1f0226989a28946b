// The order of training rows over all epochs, and their division into packs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "mantissa/text/rows/mixture.h"
#include "mantissa/text/rows/rwkv_walk.h"

namespace mantissa::text {

struct RowPlace {
  std::size_t source = 0;
  std::int64_t row = 0;  // of the source
};

/// Rows of training are counted over all epochs. Several sources take turns by their weights, and each has
/// its own epochs. With `shuffle` each epoch of a source is a permutation that depends only on the seed, the
/// source and the epoch.
class RowOrder {
 public:
  RowOrder() = default;
  /// `rows` are those of each source. Throws ConfigError unless the weights are finite and above 0.
  RowOrder(std::vector<std::int64_t> rows, std::vector<double> weights, bool shuffle, std::uint64_t seed);
  /// The order of RWKV-LM, of one source with walk.prime() rows. Every epoch has the same order.
  explicit RowOrder(const RwkvWalk& walk) : rows_{walk.prime()}, walk_(walk) {}

  /// Returns the place of training row `steps` · `batch` + `i`, where that product may overflow if there is
  /// one source.
  RowPlace at(std::int64_t steps, std::int64_t batch, std::int64_t i) const;

 private:
  RowPlace place(std::size_t source, std::int64_t epoch, std::int64_t row) const;

  std::vector<std::int64_t> rows_;
  std::optional<Mixture> mixture_;
  bool shuffle_ = true;
  std::uint64_t seed_ = 1;
  std::optional<RwkvWalk> walk_;
};

/// Packs of consecutive rows, which may cross epochs: a row begins a pack if it does not fit into the one
/// before. The order of the rows stays that of training without packs. Packs need all packs before them, so
/// those that were found are kept. Safe to use from several threads.
class Packs {
 public:
  /// `length` returns the inputs of a training row, counted over all epochs: at most `capacity`.
  Packs(std::function<std::int64_t(std::int64_t row)> length, std::int64_t capacity);
  /// Returns the first row of pack `pack`.
  std::int64_t first_row(std::int64_t pack);

 private:
  std::function<std::int64_t(std::int64_t)> length_;
  std::int64_t capacity_;
  std::mutex mutex_;
  std::vector<std::int64_t> first_ = {0};
};

}  // namespace mantissa::text
