#include "engine/graph/references/references.h"

#include "kernels/reference/pointwise.h"

namespace mantissa::graph::testing {
namespace {

/// Evaluates the expression of a pointwise op.
void pointwise(const ReferenceCall& c) {
  std::vector<double> element(c.inputs.size());
  for (std::size_t e = 0; e < c.outputs[0].values.size(); ++e) {
    // The values of a broadcast input are those of one row.
    for (std::size_t i = 0; i < element.size(); ++i)
      element[i] = c.inputs[i].values[e % c.inputs[i].values.size()];
    const std::vector<double> results = kernels::reference::evaluate(*c.expression, element);
    for (std::size_t o = 0; o < results.size(); ++o) c.outputs[o].values[e] = results[o];
  }
}

}  // namespace

std::vector<NamedReference>& added_references() {
  static std::vector<NamedReference> all;
  return all;
}

Reference reference_of(const OpDef& op) {
  if (op.run == find_op("fused").run) return pointwise;
  for (const std::span<const NamedReference> part :
       {move_references(), row_references(), product_references(), recurrent_references(),
        update_references(), std::span<const NamedReference>(added_references())}) {
    for (const NamedReference& reference : part) {
      if (reference.id == op.id) return reference.run;
    }
  }
  return nullptr;
}

}  // namespace mantissa::graph::testing
