// Reverse-mode differentiation of a graph, node by node, by the gradient rules of its ops.
#pragma once

#include <span>

#include "mantissa/engine/graph/graph.h"

namespace mantissa::graph {

/// An output from which the backward pass starts, and its gradient: an input of the program with the output's
/// shape.
struct Seed {
  ValueId output = kNone;
  ValueId gradient = kNone;
};

/// Appends the backward pass of `graph`: every trainable parameter (Value::trainable) gets its weight
/// gradient. Contributions to a value with several uses are summed in f32, in the order in which the backward
/// pass computes them, and rounded once (op "sum"). Each use of a parameter has a separate accumulator; the
/// uses are added once, in the finish phase, into the first. Nothing is computed for frozen parameters.
///
/// Throws InternalError with op and scope if a gradient that a trainable parameter needs reaches an op
/// without a gradient rule, if a rule ignores the gradient of an output, or if a trainable parameter gets no
/// gradient.
void differentiate(Graph& graph, std::span<const Seed> seeds);

}  // namespace mantissa::graph
