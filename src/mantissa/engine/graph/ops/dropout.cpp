// Dropout of a layer's values, in training steps alone.
#include "mantissa/kernels/dropout.h"

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/elements.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/kernels/round.h"

namespace mantissa::graph {
namespace {

std::vector<OutputSpec> infer(const NodeView& n) {
  const double rate = n.attributes.number("rate");
  if (!(rate > 0 && rate < 1))
    throw ShapeError("dropout: rate: expected a number between 0 and 1, got {}", rate);
  return infer_rounded(n);
}

void run(const Call& c) {
  const Argument& in = c.inputs[0];
  const Argument& out = c.outputs[0];
  const TokenRows rows = token_rows(c.extent, in);
  if (!c.extent.trains)
    return kernels::round_tensor(c.ctx, in.rows * in.width, in.data, in.type, out.data, out.type, false,
                                 false);
  kernels::dropout(
      c.ctx, c.extent, rows.width, in.in(), out.out(),
      {c.attributes.number("rate"), static_cast<std::uint64_t>(c.attributes.integer("name")), c.extent.seed});
}

}  // namespace

const OpDef kDropout = {
    .id = "dropout",
    .op = "dropout",
    .doc =
        "x/(1 − rate), or 0 with the probability rate, by bits of seed, name, sequence, position and feature; "
        "in f32, rounded once. Without a backward pass: x",
    .per_token = true,
    .infer = infer,
    .gradient =
        [](GradientBuilder& b) {
          b.contribute(0, b.emit("dropout.grad", {b.gradient(0)}, b.node().attributes).front());
        },
    .cost = cost_of_elements,
    .run = run,
};

const OpDef kDropoutGrad = {
    .id = "dropout.grad",
    .op = "dropout",
    .doc = "dy/(1 − rate), or 0 where the forward pass dropped x, an unrounded contribution",
    .per_token = true,
    .infer = [](const NodeView& n) -> std::vector<OutputSpec> {
      return {{n.shape(0), Role::arithmetic}};
    },
    .cost = cost_of_elements,
    .run = run,
};

}  // namespace mantissa::graph
