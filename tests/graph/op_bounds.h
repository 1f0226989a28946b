// Operands and errors that the tests of several ops share.
#pragma once

#include <algorithm>
#include <vector>

#include "graph/op_case.h"

namespace mantissa::graph::testing {

constexpr std::int64_t kWidth = 24;

/// Terms that one FMA chain of a sum of `n` adds, and the sums of blocks.
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
