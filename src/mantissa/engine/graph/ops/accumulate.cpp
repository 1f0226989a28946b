// A weight gradient narrower than the arithmetic: each micro-batch's is computed completely, then added.
#include "mantissa/engine/graph/ops/elements.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/kernels/update.h"

namespace mantissa::graph {
namespace {

// Inputs gradient, contribution (of one micro-batch, unrounded); output: the gradient.
std::vector<OutputSpec> infer(const NodeView& n) {
  return {{n.shape(0), Role::weight_gradient, n.inputs[0], ValueKind::weight_gradient}};
}

void run(const Call& c) {
  const Argument& contribution = c.inputs[1];
  const Argument& gradient = c.outputs[0];
  kernels::collect_gradient(c.ctx, gradient.rows * gradient.width, contribution.data, contribution.type,
                            gradient.data, gradient.type, c.accumulate);
}

}  // namespace

const OpDef kAccumulate = {
    .id = "accumulate",
    .op = "sum",
    .doc = "a micro-batch's weight gradient added in f32 to a gradient of fewer bits, rounded once",
    .duty = Duty::collect,
    .alias = 0,
    .infer = infer,
    .cost = cost_of_elements,
    .run = run,
};

}  // namespace mantissa::graph
