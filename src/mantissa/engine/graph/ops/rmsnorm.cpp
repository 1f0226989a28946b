// RMSNorm and its gradients.
#include <fmt/format.h>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/graph/ops/leaf_part.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/kernels/norm.h"

namespace mantissa::graph {
namespace {

// Inputs x [tokens, channels], gain [channels]; outputs y, rstd [tokens]. A gain with fewer channels, [d],
// normalizes each head of d channels separately: rstd [tokens, heads].
std::vector<OutputSpec> infer_forward(const NodeView& n) {
  const Shape& x = n.shape(0);
  const std::int64_t channels = n.shape(1).last();
  if (n.shape(1) != Shape{channels} || channels == 0 || x.last() % channels != 0) {
    throw ShapeError(
        fmt::format("rmsnorm: gain \"{}\" is {}, but its input has {} channels; the gain must have as many "
                    "channels as the input, or as one head for a norm over each head",
                    n.graph.value(n.inputs[1]).name, n.shape(1).str(), x.last()));
  }
  std::vector<Dim> rows(x.dims().begin(), x.dims().end() - 1);
  if (channels != x.last()) rows.push_back({x.last() / channels});
  return {{x, Role::compute},
          {Shape(std::move(rows)), Role::arithmetic, kNone, ValueKind::activation, "rstd"}};
}

Cost cost_row(const NodeView& n, const Sizes&) {
  return {4.0 * static_cast<double>(n.shape(0).count())};
}

double gain_offset(const Attributes& attributes) {
  return attributes.number("gain_offset", 0.0);
}

void run_forward(const Call& c) {
  kernels::RmsNorm n;
  n.channels = c.inputs[1].width;
  n.groups = c.inputs[0].width / n.channels;
  n.gain_offset = gain_offset(c.attributes);
  n.eps = c.attributes.number("eps");
  n.x = c.inputs[0].in();
  n.gain = c.inputs[1].in();
  n.y = c.outputs[0].out();
  n.rstd = c.outputs[1].out();
  n.statistics = c.interior;
  n.normalized = c.normalized;
  kernels::rmsnorm(c.ctx, c.outputs[0].rows, n);
}

void gradient_forward(GradientBuilder& b) {
  const ValueId dy = b.gradient(0);
  if (b.needed(0)) {
    const Attributes attributes = {{"gain_offset", gain_offset(b.node().attributes)}};
    b.contribute(0, b.emit("rmsnorm.dx", {b.input(0), b.input(1), b.output(1), dy}, attributes).front());
  }
  if (b.needed(1)) b.contribute(1, b.emit("rmsnorm.dgain", {b.input(0), b.output(1), dy}).front());
}

// Inputs x, gain, rstd, dy; output dx.
std::vector<OutputSpec> infer_dx(const NodeView& n) {
  return {{n.shape(0), Role::arithmetic}};
}

void run_dx(const Call& c) {
  kernels::RmsNormBackward n;
  n.channels = c.inputs[1].width;
  n.groups = c.inputs[2].width;
  n.gain_offset = gain_offset(c.attributes);
  n.x = c.inputs[0].in();
  n.gain = c.inputs[1].in();
  n.rstd = c.inputs[2].in();
  n.dy = c.inputs[3].in();
  if (c.addend.data != nullptr) n.addend = c.addend.in();
  n.dx = c.outputs[0].out();
  n.statistics = c.interior;
  n.normalized = c.normalized;
  kernels::rmsnorm_backward(c.ctx, c.outputs[0].rows, n);
}

// Inputs x, rstd, dy; output dgain [channels]. rstd has one number per head.
std::vector<OutputSpec> infer_dgain(const NodeView& n) {
  const std::int64_t groups = n.shape(1).count() / n.shape(0).leading();
  return {{Shape{n.shape(0).last() / groups}, Role::weight_gradient, kNone, ValueKind::weight_gradient}};
}

void run_dgain(const Call& c) {
  kernels::RmsNormGain n;
  n.groups = c.inputs[1].width;
  n.channels = c.inputs[0].width / n.groups;
  n.x = c.inputs[0].in();
  n.rstd = c.inputs[1].in();
  n.dy = c.inputs[2].in();
  n.normalized = c.normalized;
  sum_leaves(c, [&](const Extent& extent, const Argument& sum, bool accumulate) {
    n.dgain = sum.out();
    n.accumulate = accumulate;
    kernels::rmsnorm_gain(c.ctx, extent, n);
  });
}

}  // namespace

const OpDef kRmsNorm = {
    .id = "rmsnorm",
    .op = "rmsnorm",
    .doc =
        "y = x·rsqrt(mean(x²) + ε)·(offset + gain) in f32, over a token or each of its heads, rounded once, and under "
        "norm_cast=before-gain also before the gain",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b1, .outputs = 0b1},
    .per_token = true,
    .interior = "statistics",
    .normalizes = true,
    .infer = infer_forward,
    .gradient = gradient_forward,
    .cost = cost_row,
    .run = run_forward,
};

const OpDef kRmsNormDx = {
    .id = "rmsnorm.dx",
    .op = "rmsnorm",
    .doc = "g = dy·(offset + gain), dx = rstd·(g − x̂·mean(g·x̂)) in f32, unrounded contribution",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b1001, .outputs = 0b1},
    .takes_addend = true,
    .per_token = true,
    .interior = "statistics",
    .normalizes = true,
    .infer = infer_dx,
    .cost = cost_row,
    .run = run_dx,
};

const OpDef kRmsNormDgain = {
    .id = "rmsnorm.dgain",
    .op = "rmsnorm",
    .doc = "dgain += Σ dy·x̂ over leaves and heads in f32, unrounded into grads",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b101},
    .sums_tokens = true,
    .normalizes = true,
    .infer = infer_dgain,
    .cost = cost_row,
    .run = run_dgain,
    // With several heads, the chains of a block are added to the leaf one by one.
    .sums_parts = [](std::span<const Shape> inputs) { return inputs[1].rank() == 1; },
};

}  // namespace mantissa::graph
