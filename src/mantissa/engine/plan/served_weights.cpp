#include "mantissa/engine/plan/served_weights.h"

#include <fmt/format.h>

#include <cstddef>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/op.h"

namespace mantissa::plan {
namespace {

using graph::Node;
using graph::OpKind;
using graph::Value;

/// Returns true for ops whose weights files hold in quantized blocks: not for heads that return scores.
bool reads_blocks(const Node& node) {
  const OpKind kind = node.op->kind;
  return kind == OpKind::head || kind == OpKind::lookup ||
         (kind == OpKind::product && !node.attributes.flag("score"));
}

void check_blocks(const Value& weight, const kernels::WeightRounding& how) {
  const std::size_t rank = weight.shape.rank();
  const std::int64_t inputs = weight.shape.dim(how.transposed ? rank - 2 : rank - 1).size;
  const auto block = static_cast<std::int64_t>(block_of(how.format));
  if (inputs % block == 0) return;
  throw ConfigError(
      "{}: weights={} needs rows of whole blocks of {} elements, got rows of {}. Fix: a rule \"{}: "
      "weights=none\", or another format",
      weight.name, name(how.format), block, inputs, weight.name.substr(0, weight.name.rfind('.')));
}

}  // namespace

std::vector<kernels::WeightRounding> served_weights(const graph::Graph& graph,
                                                    const precision::Policy& policy) {
  std::vector<kernels::WeightRounding> served(graph.values().size());
  std::vector<bool> seen(served.size());
  for (const Node& node : graph.nodes()) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const auto id = static_cast<std::size_t>(node.inputs[i]);
      const Value& value = graph.value(node.inputs[i]);
      if (seen[id] || value.kind != graph::ValueKind::parameter) continue;
      seen[id] = true;  // the forward pass reads it first
      if (value.shape.rank() < 2 || !reads_blocks(node)) continue;
      const WeightFormat format = policy.resolve(precision::master_use(value.name)).weights;
      if (format == WeightFormat::none) continue;
      served[id] = {format,
                    node.op->sums_across_rows != nullptr && node.op->sums_across_rows(node.attributes, i)};
      check_blocks(value, served[id]);
    }
  }
  return served;
}

}  // namespace mantissa::plan
