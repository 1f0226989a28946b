#include "mantissa/engine/plan/labels.h"

namespace mantissa::plan {

std::string label_of(const graph::Graph& graph, const graph::Node& node, const graph::Value& value) {
  std::string label(value.label);
  if (node.phase != graph::Phase::backward)
    return label.empty() && node.outputs.size() > 1 ? std::string(node.op->op) : label;
  if (value.kind == graph::ValueKind::weight_gradient && value.of != graph::kNone) {
    const std::string& parameter = graph.value(value.of).name;
    label = parameter.substr(parameter.rfind('.') + 1);
  }
  return label.empty() ? label : "grad." + label;
}

}  // namespace mantissa::plan
