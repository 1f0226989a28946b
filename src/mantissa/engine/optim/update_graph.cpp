#include "mantissa/engine/optim/update_graph.h"

#include <algorithm>

#include "mantissa/engine/graph/op.h"
#include "mantissa/engine/optim/parameter_update.h"

namespace mantissa::optim {

std::vector<Parameter> trained_parameters(const graph::Graph& model) {
  std::vector<Parameter> all;
  for (const graph::ValueId id : model.parameters()) {
    const graph::Value& value = model.value(id);
    if (!value.trainable) continue;
    bool linear = value.shape.rank() == 2;
    for (const graph::Node& node : model.nodes()) {
      const bool reads = std::ranges::find(node.inputs, id) != node.inputs.end();
      const bool head = node.attributes.flag("logits") || node.attributes.flag("score");
      linear = linear && (!reads || (node.op->kind == graph::OpKind::product && !head));
    }
    all.push_back({.name = value.name, .shape = value.shape, .hidden_matrix = linear});
  }
  return all;
}

UpdateGraph build_update(const Optimizer& optimizer, const Settings& settings,
                         std::span<const Parameter> parameters) {
  UpdateGraph out;
  for (const Parameter& parameter : parameters) {
    ParameterUpdate update(out, optimizer, settings, parameter);
    optimizer.update(update);
    update.average_weights();
  }
  return out;
}

}  // namespace mantissa::optim
