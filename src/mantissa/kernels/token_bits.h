// The random bits of the elements of a token: they depend on the seed, a name, the sequence and the position,
// not on the rest of the batch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mantissa/core/numeric/philox.h"
#include "mantissa/core/tensor/extent.h"

namespace mantissa::kernels {

/// A token's stream, and its position in it: feature i of `width` has the bits position · width + i.
struct TokenBits {
  RandomStream stream;
  std::uint64_t position = 0;
};

/// Returns the bits of `token` of a batch for the value whose name has the hash `name`.
inline TokenBits token_bits(const Extent& extent, std::int64_t token, std::uint64_t name,
                            RandomUse use = RandomUse::activation) {
  const auto after =
      std::upper_bound(extent.segments.begin(), extent.segments.end(), token,
                       [](std::int64_t t, const Segment& segment) { return t < segment.begin; });
  const Segment& s = *(after - 1);
  return {RandomStream(extent.seed, use, name, s.sequence),
          static_cast<std::uint64_t>(s.position + token - s.begin)};
}

}  // namespace mantissa::kernels
