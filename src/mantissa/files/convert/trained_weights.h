// The values with which a run computed, of a model that it trained for the format in which it is served.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "mantissa/core/numeric/scaled.h"
#include "mantissa/engine/graph/graph.h"
#include "mantissa/files/convert/origin.h"
#include "mantissa/kernels/round_weights.h"

namespace mantissa::convert {

using TrainedWeights = std::map<std::string, kernels::WeightRounding>;

/// Returns how the run that wrote weights with `metadata` rounded the parameters of `graph` before their
/// products, by name: those to which its policy gives `weights`. Empty if the files do not hold all bits of
/// the run's masters, so the values with which it computed are not known.
TrainedWeights trained_weights(const graph::Graph& graph, const Metadata& metadata);

/// Returns those of a model with the config.json `config` that the run rounded to `blocks`. Empty if the
/// inputs of a layer do not lie along the last axis of its weight, or if `config` is not that of a known
/// model.
TrainedWeights trained_in_rows(const nlohmann::json& config, const Metadata& metadata, BlockFormat blocks);

}  // namespace mantissa::convert
