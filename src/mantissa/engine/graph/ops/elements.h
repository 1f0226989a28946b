// Parts of the definitions of ops that process every element of an input separately.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mantissa/engine/graph/op.h"

namespace mantissa::graph {

/// One operation per element of the first input.
inline Cost cost_of_elements(const NodeView& n, const Sizes&) {
  return {static_cast<double>(n.shape(0).count())};
}

/// The first input's shape, in the compute format.
inline std::vector<OutputSpec> infer_rounded(const NodeView& n) {
  return {{n.shape(0), Role::compute}};
}

/// The elements of a value as a matrix with a row for each token, or for each row of a batch.
struct TokenRows {
  std::int64_t count = 0, width = 0;
};
/// Several rows of a token, those of its experts, follow each other.
inline TokenRows token_rows(const Extent& extent, const Argument& a) {
  const std::int64_t of_token =
      a.axis == Axis::tokens && extent.tokens > 0 ? std::max<std::int64_t>(a.rows / extent.tokens, 1) : 1;
  return {a.rows / of_token, a.width * of_token};
}

}  // namespace mantissa::graph
