#include "mantissa/graph/autodiff.h"

#include <algorithm>
#include <cassert>

#include "mantissa/graph/op.h"

namespace mantissa::graph {

GradientBuilder::GradientBuilder(Graph& graph, NodeId node, std::vector<std::vector<ValueId>>& contributions,
                                 std::vector<ValueId>& gradients, const std::vector<bool>& needs_gradient)
    : graph_(graph),
      node_(graph.node(node)),
      contributions_(contributions),
      gradients_(gradients),
      needs_gradient_(needs_gradient) {}

ValueId GradientBuilder::gradient(std::size_t i) const {
  return gradients_[static_cast<std::size_t>(node_.outputs[i])];
}

bool GradientBuilder::needed(std::size_t i) const {
  return needs_gradient_[static_cast<std::size_t>(node_.inputs[i])];
}

std::vector<ValueId> GradientBuilder::emit(std::string_view op, std::vector<ValueId> inputs,
                                           Attributes attributes) {
  const NodeId id =
      graph_.add_node(op, node_.scope, std::move(inputs), std::move(attributes), Phase::backward);
  return graph_.node(id).outputs;
}

void GradientBuilder::contribute(std::size_t i, ValueId contribution) {
  if (!needed(i)) return;
  contributions_[static_cast<std::size_t>(node_.inputs[i])].push_back(contribution);
}

namespace {

/// Which values are trained, or depend on something that is.
std::vector<bool> find_needed(const Graph& graph) {
  std::vector<bool> needed(graph.values().size(), false);
  for (std::size_t i = 0; i < needed.size(); ++i)
    needed[i] = graph.value(static_cast<ValueId>(i)).kind == ValueKind::parameter;
  for (const Node& node : graph.nodes()) {
    const bool any = std::any_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId v) { return needed[static_cast<std::size_t>(v)]; });
    for (const ValueId out : node.outputs) needed[static_cast<std::size_t>(out)] = any;
  }
  return needed;
}

/// The gradient of `value`: the sum of its contributions, in its own format.
ValueId sum_contributions(Graph& graph, ValueId value, const std::vector<ValueId>& contributions) {
  const NodeId producer = graph.value(value).producer;
  const std::string scope = producer == kNone ? graph.value(value).name : graph.node(producer).scope;
  const NodeId sum =
      graph.add_node("sum", scope, contributions, {{"of", std::int64_t{value}}}, Phase::backward);
  return graph.node(sum).outputs.front();
}

/// A weight gradient is complete as it is; a tied weight's uses are added in the finish phase.
void finish_parameter(Graph& graph, ValueId parameter, const std::vector<ValueId>& uses) {
  for (std::size_t i = 0; i < uses.size(); ++i) {
    graph.value(uses[i]).of = parameter;
    graph.value(uses[i]).use = static_cast<std::int32_t>(i);
  }
  if (uses.size() > 1) {
    graph.add_node("sum_uses", graph.value(parameter).name, uses, {{"of", std::int64_t{parameter}}},
                   Phase::finish);
  }
}

}  // namespace

void differentiate(Graph& graph, ValueId output, ValueId seed) {
  const std::vector<bool> needed = find_needed(graph);
  const std::size_t values = graph.values().size();
  std::vector<std::vector<ValueId>> contributions(values);
  std::vector<ValueId> gradients(values, kNone);
  gradients[static_cast<std::size_t>(output)] = seed;
  for (NodeId id = static_cast<NodeId>(graph.nodes().size()) - 1; id >= 0; --id) {
    const Node node = graph.node(id);
    bool reached = false;
    for (const ValueId out : node.outputs) {
      const auto o = static_cast<std::size_t>(out);
      if (gradients[o] == kNone && !contributions[o].empty())
        gradients[o] = sum_contributions(graph, out, contributions[o]);
      reached = reached || gradients[o] != kNone;
    }
    if (!reached || node.op->gradient == nullptr) continue;
    GradientBuilder builder(graph, id, contributions, gradients, needed);
    node.op->gradient(builder);
  }
  for (const ValueId parameter : graph.parameters()) {
    const auto p = static_cast<std::size_t>(parameter);
    if (!contributions[p].empty()) finish_parameter(graph, parameter, contributions[p]);
  }
}

}  // namespace mantissa::graph
