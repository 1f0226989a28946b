// The names of a step's results among each other.
#pragma once

#include <string>

#include "mantissa/engine/graph/graph.h"

namespace mantissa::plan {

/// Returns the name of a result of `node` (Step::labels): "q", "grad.weight"; "" if it needs none.
std::string label_of(const graph::Graph& graph, const graph::Node& node, const graph::Value& value);

}  // namespace mantissa::plan
