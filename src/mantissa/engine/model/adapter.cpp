#include "mantissa/engine/model/adapter.h"

#include <algorithm>
#include <cmath>

#include "mantissa/engine/graph/op.h"
#include "mantissa/engine/model/config.h"
#include "mantissa/engine/model/graphs.h"

namespace mantissa::model {

const AdapterLayer* Adapter::find(std::string_view scope) const {
  const auto found = layers.find(scope);
  return found == layers.end() ? nullptr : &found->second;
}

double Adapter::scale(const AdapterLayer& layer) const {
  const auto rank = static_cast<double>(layer.rank);
  return layer.alpha / (rslora ? std::sqrt(rank) : rank);
}

bool Adapter::owns(std::string_view parameter) const {
  if (states && parameter.ends_with(kInitialState)) return true;
  constexpr std::string_view kEnd = ".weight";
  if (!parameter.ends_with(kEnd)) return false;
  const std::string_view name = parameter.substr(0, parameter.size() - kEnd.size());
  if (std::ranges::find(heads, name) != heads.end()) return true;
  const auto is = [&](std::string_view part) {
    return name.ends_with(part) && find(name.substr(0, name.size() - part.size())) != nullptr;
  };
  return is(kLoraA) || is(kLoraB) || (dora && is(kMagnitude));
}

std::vector<RecurrentLayer> recurrent_layers(const ModelConfig& config) {
  ModelConfig plain = config;
  plain.adapter.reset();
  const graph::Graph graph = build_forward(plain);
  std::vector<RecurrentLayer> layers;
  for (const graph::Node& node : graph.nodes()) {
    if (node.op->kind != graph::OpKind::recurrence) continue;
    const graph::Attributes& a = node.attributes;
    layers.push_back({node.scope, {a.integer("heads"), a.integer("key_dim"), a.integer("value_dim")}});
  }
  return layers;
}

std::vector<std::string> expert_scopes(const ModelConfig& config) {
  ModelConfig plain = config;
  plain.adapter.reset();
  const graph::Graph graph = build_forward(plain);
  std::vector<std::string> scopes;
  for (const graph::Node& node : graph.nodes()) {
    const bool product = node.op->kind == graph::OpKind::product;
    if (product && graph.value(node.inputs[1]).shape.rank() == 3) scopes.push_back(node.scope);
  }
  return scopes;
}

std::vector<LinearLayer> linear_layers(const ModelConfig& config) {
  ModelConfig plain = config;
  plain.adapter.reset();
  const graph::Graph graph = build_forward(plain);
  std::vector<LinearLayer> layers;
  for (const graph::Node& node : graph.nodes()) {
    if (node.op->kind != graph::OpKind::product || node.attributes.flag("score")) continue;
    const bool in_out = node.attributes.flag("transposed");
    const Shape& weight = graph.value(node.inputs[1]).shape;
    if (weight.rank() != 2) continue;  // of all experts of a layer
    layers.push_back({node.scope, weight.dim(in_out ? 0 : 1).size, weight.dim(in_out ? 1 : 0).size, in_out});
  }
  return layers;
}

}  // namespace mantissa::model
