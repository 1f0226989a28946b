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

namespace {

/// Calls visit(node, shape of its weight) for the products with weights.
template <class Visit>
void for_products(const ModelConfig& config, const Visit& visit) {
  ModelConfig plain = config;
  plain.adapter.reset();
  const graph::Graph graph = build_forward(plain);
  for (const graph::Node& node : graph.nodes()) {
    if (node.op->kind == graph::OpKind::product && !node.attributes.flag("score"))
      visit(node, graph.value(node.inputs[1]).shape);
  }
}

}  // namespace

std::vector<LinearLayer> linear_layers(const ModelConfig& config) {
  std::vector<LinearLayer> layers;
  for_products(config, [&](const graph::Node& node, const Shape& weight) {
    if (weight.rank() != 2) return;  // of all experts of a layer
    const bool in_out = node.attributes.flag("transposed");
    layers.push_back({node.scope, weight.dim(in_out ? 0 : 1).size, weight.dim(in_out ? 1 : 0).size, in_out});
  });
  return layers;
}

std::vector<LinearLayer> expert_layers(const ModelConfig& config) {
  std::vector<LinearLayer> layers;
  for_products(config, [&](const graph::Node& node, const Shape& weight) {
    if (weight.rank() != 3) return;
    layers.push_back({node.scope, weight.last(), weight.dim(1).size, false, weight.dim(0).size});
  });
  return layers;
}

}  // namespace mantissa::model
