// LayerNorm and its gradients.
#include "mantissa/kernels/layernorm.h"

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/leaf_part.h"
#include "mantissa/engine/graph/ops/ops.h"

namespace mantissa::graph {
namespace {

// Inputs x [tokens, channels], gain [channels] and optionally bias [channels]; outputs y, mean [tokens], rstd
// [tokens].
std::vector<OutputSpec> infer_forward(const NodeView& n) {
  const Shape& x = n.shape(0);
  for (std::size_t i = 1; i < n.inputs.size(); ++i) {
    if (n.shape(i) != Shape{x.last()}) {
      throw ShapeError("layernorm: {} \"{}\" is {}, but its input has {} channels", i == 1 ? "gain" : "bias",
                       n.graph.value(n.inputs[i]).name, n.shape(i).str(), x.last());
    }
  }
  const Shape tokens(std::vector<Dim>(x.dims().begin(), x.dims().end() - 1));
  return {{x, n.attributes.flag("residual") ? Role::residual : Role::compute},
          {tokens, Role::arithmetic, kNone, ValueKind::activation, "mean"},
          {tokens, Role::arithmetic, kNone, ValueKind::activation, "rstd"}};
}

Cost cost_row(const NodeView& n, const Sizes&) {
  return {8.0 * static_cast<double>(n.shape(0).count())};
}

void run_forward(const Call& c) {
  kernels::LayerNorm n;
  n.channels = c.inputs[0].width;
  n.eps = c.attributes.number("eps");
  n.x = c.inputs[0].in();
  n.gain = c.inputs[1].in();
  if (c.inputs.size() > 2) n.bias = c.inputs[2].in();
  n.y = c.outputs[0].out();
  n.mean = c.outputs[1].out();
  n.rstd = c.outputs[2].out();
  n.statistics = c.interior;
  kernels::layernorm(c.ctx, c.outputs[0].rows, n);
}

void gradient_forward(GradientBuilder& b) {
  const ValueId x = b.input(0), mean = b.output(1), rstd = b.output(2), dy = b.gradient(0);
  if (b.needed(0)) b.contribute(0, b.emit("layernorm.dx", {x, b.input(1), mean, rstd, dy}).front());
  if (b.needed(1)) b.contribute(1, b.emit("layernorm.dgain", {x, mean, rstd, dy}).front());
  if (b.node().inputs.size() > 2 && b.needed(2)) b.contribute(2, b.emit("token_sum", {dy}).front());
}

// Inputs x, gain, mean, rstd, dy; output dx.
std::vector<OutputSpec> infer_dx(const NodeView& n) {
  return {{n.shape(0), Role::arithmetic}};
}

void run_dx(const Call& c) {
  kernels::LayerNormBackward n;
  n.channels = c.inputs[0].width;
  n.x = c.inputs[0].in();
  n.gain = c.inputs[1].in();
  n.mean = c.inputs[2].in();
  n.rstd = c.inputs[3].in();
  n.dy = c.inputs[4].in();
  if (c.addend.data != nullptr) n.addend = c.addend.in();
  n.dx = c.outputs[0].out();
  n.statistics = c.interior;
  kernels::layernorm_backward(c.ctx, c.outputs[0].rows, n);
}

// Inputs x, mean, rstd, dy; output dgain [channels].
std::vector<OutputSpec> infer_dgain(const NodeView& n) {
  return {{Shape{n.shape(0).last()}, Role::weight_gradient, kNone, ValueKind::weight_gradient}};
}

void run_dgain(const Call& c) {
  kernels::LayerNormGain n;
  n.channels = c.inputs[0].width;
  n.x = c.inputs[0].in();
  n.mean = c.inputs[1].in();
  n.rstd = c.inputs[2].in();
  n.dy = c.inputs[3].in();
  sum_leaves(c, [&](const Extent& extent, const Argument& sum, bool accumulate) {
    n.dgain = sum.out();
    n.accumulate = accumulate;
    kernels::layernorm_gain(c.ctx, extent, n);
  });
}

}  // namespace

const OpDef kLayerNorm = {
    .id = "layernorm",
    .op = "layernorm",
    .doc = "y = (x − mean)·rsqrt(var + ε)·gain + bias in f32, rounded once",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b1, .outputs = 0b1},
    .per_token = true,
    .interior = "statistics",
    .infer = infer_forward,
    .gradient = gradient_forward,
    .cost = cost_row,
    .run = run_forward,
};

const OpDef kLayerNormDx = {
    .id = "layernorm.dx",
    .op = "layernorm",
    .doc = "g = dy·gain, dx = rstd·(g − mean(g) − x̂·mean(g·x̂)) in f32, unrounded contribution",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b10001, .outputs = 0b1},
    .takes_addend = true,
    .per_token = true,
    .interior = "statistics",
    .infer = infer_dx,
    .cost = cost_row,
    .run = run_dx,
};

const OpDef kLayerNormDgain = {
    .id = "layernorm.dgain",
    .op = "layernorm",
    .doc = "dgain += Σ dy·x̂ over leaves in f32, unrounded into grads",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b1001},
    .sums_tokens = true,
    .infer = infer_dgain,
    .cost = cost_row,
    .run = run_dgain,
    .sums_parts = [](std::span<const Shape>) { return true; },
};

}  // namespace mantissa::graph
