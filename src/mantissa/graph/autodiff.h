// Reverse-mode differentiation of a graph, node by node, by the gradient rules of its ops.
#pragma once

#include <span>

#include "mantissa/graph/graph.h"

namespace mantissa::graph {

/// An output that the backward pass starts from, and its gradient: an input of the program with the output's
/// shape.
struct Seed {
  ValueId output = kNone;
  ValueId gradient = kNone;
};

/// Appends the backward pass of `graph`: every trainable parameter (Value::trainable) gets its weight
/// gradient. Contributions to a value that is used several times are summed in f32, in the order in which the
/// backward pass makes them, and rounded once (op "sum"). Each use of a parameter has an accumulator of its
/// own; uses are added once, in the finish phase, into the first. Nothing is computed for frozen parameters.
///
/// Throws InternalError, naming op and scope, where a gradient that a trainable parameter needs reaches an op
/// without a gradient rule, where a rule ignores the gradient of an output, and where a trainable parameter
/// gets no gradient.
void differentiate(Graph& graph, std::span<const Seed> seeds);

/// The same from one output.
void differentiate(Graph& graph, ValueId output, ValueId gradient);

}  // namespace mantissa::graph
