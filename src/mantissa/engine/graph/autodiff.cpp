#include "mantissa/engine/graph/autodiff.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/op.h"

namespace mantissa::graph {
namespace {

[[noreturn]] void fail(const Node& node, const std::string& what) {
  throw InternalError("{} {}: {}", node.scope, node.op->id, what);
}

}  // namespace

GradientBuilder::GradientBuilder(Graph& graph, NodeId node, std::vector<std::vector<ValueId>>& contributions,
                                 const std::vector<ValueId>& gradients,
                                 const std::vector<bool>& needs_gradient)
    : graph_(graph),
      node_(graph.node(node)),
      contributions_(contributions),
      gradients_(gradients),
      needs_gradient_(needs_gradient),
      read_(node_.outputs.size(), false) {}

ValueId GradientBuilder::gradient(std::size_t i) {
  read_.at(i) = true;
  return gradients_[static_cast<std::size_t>(output(i))];
}

bool GradientBuilder::needed(std::size_t i) const {
  return needs_gradient_[static_cast<std::size_t>(input(i))];
}

std::vector<ValueId> GradientBuilder::emit(std::string_view op, std::vector<ValueId> inputs,
                                           Attributes attributes) {
  if (std::find(inputs.begin(), inputs.end(), kNone) != inputs.end())
    fail(node_, fmt::format("its gradient needs a {} of values that have no gradient", op));
  const NodeId id =
      graph_.add_node(op, node_.scope, std::move(inputs), std::move(attributes), Phase::backward);
  return graph_.node(id).outputs;
}

void GradientBuilder::contribute(std::size_t i, ValueId contribution) {
  if (!needed(i)) return;
  contributions_[static_cast<std::size_t>(input(i))].push_back(contribution);
}

void GradientBuilder::check_all_read() const {
  for (std::size_t i = 0; i < read_.size(); ++i) {
    if (gradients_[static_cast<std::size_t>(output(i))] != kNone && !read_[i])
      fail(node_, fmt::format("the gradient of output {} (\"{}\") would be ignored", i,
                              graph_.value(output(i)).name));
  }
}

namespace {

/// Returns for each value whether it is trained or depends on something that is.
std::vector<bool> find_needed(const Graph& graph) {
  std::vector<bool> needed(graph.values().size(), false);
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const Value& value = graph.value(static_cast<ValueId>(i));
    needed[i] = value.kind == ValueKind::parameter && value.trainable;
  }
  for (const Node& node : graph.nodes()) {
    const bool any = std::any_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId v) { return needed[static_cast<std::size_t>(v)]; });
    for (const ValueId out : node.outputs)
      needed[static_cast<std::size_t>(out)] = any && graph.value(out).role != Role::integer;
  }
  return needed;
}

/// Returns the gradient of `value`: the sum of its contributions, in the value's format.
ValueId sum_contributions(Graph& graph, ValueId value, const std::vector<ValueId>& contributions) {
  const NodeId producer = graph.value(value).producer;
  const std::string scope = producer == kNone ? graph.value(value).name : graph.node(producer).scope;
  const NodeId sum =
      graph.add_node("sum", scope, contributions, {{"of", std::int64_t{value}}}, Phase::backward);
  return graph.node(sum).outputs.front();
}

/// The weight gradient of a single use is complete. The uses of a tied weight are added in the finish phase.
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

/// One differentiation, with the gradients known so far.
class Differentiation {
 public:
  explicit Differentiation(Graph& graph)
      : graph_(graph),
        needed_(find_needed(graph)),
        contributions_(graph.values().size()),
        gradients_(graph.values().size(), kNone) {}

  void run(std::span<const Seed> seeds) {
    for (const Seed& seed : seeds) {
      if (graph_.value(seed.output).shape != graph_.value(seed.gradient).shape) {
        throw InternalError("the gradient of \"{}\" is {}, but the output is {}",
                            graph_.value(seed.output).name, graph_.value(seed.gradient).shape.str(),
                            graph_.value(seed.output).shape.str());
      }
      contributions_[at(seed.output)].push_back(seed.gradient);
    }
    const std::size_t nodes = graph_.nodes().size();
    for (std::size_t id = nodes; id-- > 0;) visit(static_cast<NodeId>(id));
    for (const ValueId parameter : graph_.parameters()) {
      if (!graph_.value(parameter).trainable) continue;
      if (contributions_[at(parameter)].empty())
        throw InternalError(
            "parameter \"{}\" gets no gradient; freeze it, or let a differentiated output depend on it",
            graph_.value(parameter).name);
      finish_parameter(graph_, parameter, contributions_[at(parameter)]);
    }
  }

 private:
  static std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }

  void visit(NodeId id) {
    const Node node = graph_.node(id);
    bool reached = false;
    for (const ValueId out : node.outputs) {
      const std::vector<ValueId>& parts = contributions_[at(out)];
      if (!needed_[at(out)] || parts.empty()) continue;
      // A seed is used as given; gradients of the backward pass are rounded to the value's format.
      const bool seed = parts.size() == 1 && graph_.value(parts.front()).producer == kNone;
      gradients_[at(out)] = seed ? parts.front() : sum_contributions(graph_, out, parts);
      reached = true;
    }
    if (!reached) return;
    if (node.op->gradient == nullptr) fail(node, "has no gradient rule, but a trainable parameter needs it");
    GradientBuilder builder(graph_, id, contributions_, gradients_, needed_);
    node.op->gradient(builder);
    builder.check_all_read();
  }

  Graph& graph_;
  std::vector<bool> needed_;
  std::vector<std::vector<ValueId>> contributions_;
  std::vector<ValueId> gradients_;
};

}  // namespace

void differentiate(Graph& graph, std::span<const Seed> seeds) {
  Differentiation(graph).run(seeds);
}

}  // namespace mantissa::graph
