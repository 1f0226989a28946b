// Reverse-mode differentiation of a graph, node by node, by the gradient rules of its ops.
#pragma once

#include "mantissa/graph/graph.h"

namespace mantissa::graph {

/// Appends the backward pass of `graph`: given the gradient `seed` of `output` (an input of the program),
/// every trainable parameter gets its weight gradient. Contributions to a value that is used several times
/// are summed in f32, in the order in which the backward pass makes them, and rounded once (op "sum"). Each
/// use of a parameter has an accumulator of its own; uses are added once, in the finish phase, into the
/// first.
void differentiate(Graph& graph, ValueId output, ValueId seed);

}  // namespace mantissa::graph
