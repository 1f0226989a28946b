// The order in which the rows of several sources take turns.
#pragma once

#include <cstdint>
#include <vector>

namespace mantissa::text {

/// A row of a source: the `number`-th that the source gives, from 0, over all its epochs.
struct MixedRow {
  std::size_t source = 0;
  std::int64_t number = 0;
};

/// Assigns the rows of training, numbered over all steps, to sources in proportion to weights. Computes any
/// row directly, so resuming needs no position. Within each block of kBlock rows the shares are exact to
/// about one row per source, and the order is a permutation that depends on the seed.
class Mixture {
 public:
  static constexpr std::int64_t kBlock = 1024;

  /// Throws ConfigError unless all weights are finite and above 0.
  Mixture(std::vector<double> weights, std::uint64_t seed);

  /// Returns row `row` of training, from 0. Each source's numbers increase by one from 0 within the sorted
  /// rows of a block, and from block to block.
  MixedRow at(std::int64_t row) const;

 private:
  std::vector<double> shares_;  // of the source among itself and those after it
  std::uint64_t seed_;
};

}  // namespace mantissa::text
