// Sizes of operands in op tests, and the number of terms of their sums.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/graph/op_case.h"

namespace mantissa::graph::testing {

constexpr std::int64_t kWidth = 24;
constexpr std::int64_t kVocabulary = 1040, kHeadWidth = 8;  // more than one chunk of the head
constexpr std::int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 8;
constexpr std::int64_t kPositions = 320, kSlots = 4;

/// Terms in one FMA chain of a sum of `n`, and the sums of blocks.
inline double chain_of(std::int64_t n) {
  return static_cast<double>(std::min<std::int64_t>(n, 256) + n / 256 + 2);
}

/// A sum over tokens: blocks of 256, then rows, then leaves.
inline double token_chain(const Case& c) {
  return chain_of(c.extent().tokens) + 2 * static_cast<double>(c.extent().rows.size());
}

inline double tokens_of(const Case& c) {
  return static_cast<double>(c.extent().tokens);
}

inline auto chain(double roundings) {
  return [roundings](const Case&) { return Bound{roundings}; };
}

inline auto same_shape(std::size_t n, Stored stored = Stored::storage) {
  return [n, stored](std::int64_t t, std::int64_t) {
    return std::vector<InputSpec>(n, {Shape::tokens(t, {kWidth}), stored});
  };
}

}  // namespace mantissa::graph::testing
