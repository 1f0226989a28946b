// A pseudo-random permutation of [0, size) that needs no table.
#pragma once

#include <bit>
#include <cstdint>

#include "mantissa/core/numeric/philox.h"

namespace mantissa::text {

/// A bijection of [0, size), 1 ≤ size < 2^63, chosen by (seed, epoch): six rounds of a balanced Feistel
/// network over the smallest even number of bits that holds size − 1, with Philox as the round function,
/// applied until the value is below `size` (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite
/// domains", 2002). A value takes at most four walks on average and no memory, so any row of any epoch can be
/// computed directly.
class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch)
      : size_(size),
        stream_(seed, RandomUse::data, hash_name("shuffle"), epoch),
        half_((static_cast<unsigned>(std::bit_width(size - 1)) + 1) / 2),
        mask_((std::uint64_t{1} << half_) - 1) {}

  /// Returns the value at `index` < size.
  std::uint64_t operator()(std::uint64_t index) const {
    do {
      index = network(index);
    } while (index >= size_);
    return index;
  }

 private:
  std::uint64_t network(std::uint64_t value) const {
    std::uint64_t left = value >> half_;
    std::uint64_t right = value & mask_;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t next = left ^ (stream_.block(round << 32 | right)[0] & mask_);
      left = right;
      right = next;
    }
    return left << half_ | right;
  }

  static constexpr std::uint64_t kRounds = 6;
  std::uint64_t size_;
  RandomStream stream_;
  unsigned half_;  // bits of each half, at most 32
  std::uint64_t mask_;
};

}  // namespace mantissa::text
