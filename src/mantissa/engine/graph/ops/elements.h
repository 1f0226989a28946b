// Parts of the definitions of ops that process every element of an input separately.
#pragma once

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

}  // namespace mantissa::graph
