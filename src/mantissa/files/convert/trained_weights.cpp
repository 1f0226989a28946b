#include "mantissa/files/convert/trained_weights.h"

#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/config.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/plan/served_weights.h"

namespace mantissa::convert {
namespace {

/// Returns true if values of `rounded_to`, the last rounding of the files, are those of masters in `params`.
bool holds_masters(const std::string& rounded_to, Scalar params) {
  const std::optional<Scalar> format = parse_scalar(rounded_to);
  return format && holds(*format, params);
}

}  // namespace

TrainedWeights trained_weights(const graph::Graph& graph, const Metadata& metadata) {
  const auto line = metadata.find(kPolicyKey), rounded_to = metadata.find(kRoundedToKey);
  if (line == metadata.end() || rounded_to == metadata.end()) return {};
  TrainedWeights trained;
  try {
    const precision::Policy policy = precision::Policy::parse(line->second);
    const std::vector<kernels::WeightRounding> served = plan::served_weights(graph, policy);
    for (const graph::ValueId p : graph.parameters()) {
      const graph::Value& value = graph.value(p);
      const kernels::WeightRounding& how = served[static_cast<std::size_t>(p)];
      if (how.format == WeightFormat::none) continue;
      if (!holds_masters(rounded_to->second, policy.resolve(precision::master_use(value.name)).params))
        return {};
      trained.emplace(value.name, how);
    }
  } catch (const ConfigError&) {
    return {};  // the policy of another version
  }
  return trained;
}

TrainedWeights trained_in_rows(const nlohmann::json& config, const Metadata& metadata, BlockFormat blocks) {
  if (!metadata.contains(kPolicyKey)) return {};
  TrainedWeights trained;
  try {
    const model::ModelConfig model = model::parse_model_config(config, "config.json");
    trained = trained_weights(model::build_log_prob(model, 1, 1, false), metadata);
  } catch (const ConfigError&) {
    return {};
  }
  std::erase_if(trained,
                [&](const auto& weight) { return name(weight.second.format) != traits(blocks).name; });
  for (const auto& [name, how] : trained) {
    if (how.transposed) return {};
  }
  return trained;
}

}  // namespace mantissa::convert
