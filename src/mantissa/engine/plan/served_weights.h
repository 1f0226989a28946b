// The formats in which weights will be served, to which a program rounds them before their products.
#pragma once

#include <vector>

#include "mantissa/engine/graph/graph.h"
#include "mantissa/kernels/round_weights.h"
#include "mantissa/precision/policy/policy.h"

namespace mantissa::plan {

/// Returns for each value of the graph how it is rounded before its products and look-ups. Only parameters of
/// Linear layers, experts, embeddings and heads are; all uses of one have the same values. Blocks lie along
/// the inputs of a layer, however the weight is stored. Throws ConfigError if its rows do not divide into
/// blocks.
std::vector<kernels::WeightRounding> served_weights(const graph::Graph& graph,
                                                    const precision::Policy& policy);

}  // namespace mantissa::plan
