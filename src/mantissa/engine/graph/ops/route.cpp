// The router of a mixture of experts (Shazeer et al., arXiv 1701.06538): the choice of experts for each
// token, and the weighted sum of their results.
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/chosen_shapes.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/kernels/experts.h"

namespace mantissa::graph {
namespace {

const std::int32_t* ids(const Argument& a) {
  return static_cast<const std::int32_t*>(a.data);
}

// ---- route: input logits [tokens, experts]; outputs weights and choice [tokens, chosen]. Attributes:
// "chosen", "normalized"

std::vector<OutputSpec> infer_route(const NodeView& n) {
  const std::int64_t chosen = n.attributes.integer("chosen"), experts = n.shape(0).last();
  if (chosen < 1 || chosen > experts)
    throw ShapeError("route: a token can have 1 to {} experts of this layer, got {}", experts, chosen);
  const Shape shape = with_last(n.shape(0), chosen);
  return {{shape, Role::arithmetic, kNone, ValueKind::activation, "weights"},
          {shape, Role::integer, kNone, ValueKind::activation, "choice"}};
}

void run_route(const Call& c) {
  kernels::Route r;
  r.experts = c.inputs[0].width;
  r.chosen = c.outputs[0].width;
  r.normalized = c.attributes.flag("normalized");
  r.logits = c.inputs[0].in();
  r.weights = c.outputs[0].out();
  r.choice = static_cast<std::int32_t*>(c.outputs[1].data);
  r.interior = c.interior;
  kernels::route(c.ctx, c.inputs[0].rows, r);
}

void gradient_route(GradientBuilder& b) {
  if (!b.needed(0)) return;
  b.contribute(0, b.emit("route.grad", {b.gradient(0), b.output(0), b.output(1), b.input(0)},
                         {{"normalized", b.node().attributes.flag("normalized")}})
                      .front());
}

// Inputs dweights, weights, choice, logits; output dlogits.
std::vector<OutputSpec> infer_route_grad(const NodeView& n) {
  return {{n.shape(3), Role::arithmetic}};
}

void run_route_grad(const Call& c) {
  kernels::RouteBackward r;
  r.experts = c.inputs[3].width;
  r.chosen = c.inputs[0].width;
  r.normalized = c.attributes.flag("normalized");
  r.dweights = c.inputs[0].in();
  r.weights = c.inputs[1].in();
  r.choice = ids(c.inputs[2]);
  r.logits = c.inputs[3].in();
  r.dlogits = c.outputs[0].out();
  r.interior = c.interior;
  kernels::route_backward(c.ctx, c.inputs[3].rows, r);
}

// ---- combine: inputs x [tokens, chosen, width], weights [tokens, chosen]; output [tokens, width]

std::vector<OutputSpec> infer_combine(const NodeView& n) {
  return {{with_last(n.shape(1), n.shape(0).last()), Role::compute}};
}

Cost cost_combine(const NodeView& n, const Sizes&) {
  return {2.0 * static_cast<double>(n.shape(0).count())};
}

void run_combine(const Call& c) {
  kernels::combine(
      c.ctx, c.outputs[0].rows,
      {c.inputs[1].width, c.inputs[0].width, c.inputs[0].in(), c.inputs[1].in(), c.outputs[0].out()});
}

void gradient_combine(GradientBuilder& b) {
  const ValueId dy = b.gradient(0);
  if (b.needed(0)) b.contribute(0, b.emit("combine.dx", {dy, b.input(1)}).front());
  if (b.needed(1)) b.contribute(1, b.emit("combine.dweights", {dy, b.input(0)}).front());
}

// Inputs dy [tokens, width], weights [tokens, chosen]; output [tokens, chosen, width].
std::vector<OutputSpec> infer_combine_dx(const NodeView& n) {
  return {{with_more(n.shape(1), n.shape(0).last()), Role::arithmetic}};
}

void run_combine_dx(const Call& c) {
  kernels::combine_dx(
      c.ctx, c.inputs[0].rows,
      {c.inputs[1].width, c.inputs[0].width, c.inputs[0].in(), c.inputs[1].in(), c.outputs[0].out()});
}

// Inputs dy [tokens, width], x [tokens, chosen, width]; output [tokens, chosen].
std::vector<OutputSpec> infer_combine_dweights(const NodeView& n) {
  const std::vector<Dim>& dims = n.shape(1).dims();
  return {{Shape(std::vector<Dim>(dims.begin(), dims.end() - 1)), Role::arithmetic}};
}

void run_combine_dweights(const Call& c) {
  kernels::combine_dweights(
      c.ctx, c.inputs[0].rows,
      {c.outputs[0].width, c.inputs[0].width, c.inputs[0].in(), c.inputs[1].in(), c.outputs[0].out()});
}

}  // namespace

const OpDef kRoute = {
    .id = "route",
    .op = "route",
    .doc =
        "the experts with the largest logits, and their softmax over all experts or the chosen ones, in f32",
    .kind = OpKind::rows,
    .per_token = true,
    .interior = "softmax",
    .routes = true,
    .infer = infer_route,
    .gradient = gradient_route,
    .run = run_route,
};

const OpDef kRouteGrad = {
    .id = "route.grad",
    .op = "route",
    .doc = "w·(dw − Σ w·dw) of the chosen experts in f32, the choice constant, an unrounded contribution",
    .kind = OpKind::rows,
    .per_token = true,
    .interior = "softmax",
    .infer = infer_route_grad,
    .run = run_route_grad,
};

const OpDef kCombine = {
    .id = "combine",
    .op = "combine",
    .doc = "Σ w·x over the chosen experts, in their order in f32, rounded once",
    .kind = OpKind::rows,
    .per_token = true,
    .infer = infer_combine,
    .gradient = gradient_combine,
    .cost = cost_combine,
    .run = run_combine,
};

const OpDef kCombineDx = {
    .id = "combine.dx",
    .op = "combine",
    .doc = "w·dy for each chosen expert in f32, an unrounded contribution",
    .kind = OpKind::rows,
    .per_token = true,
    .infer = infer_combine_dx,
    .run = run_combine_dx,
};

const OpDef kCombineDweights = {
    .id = "combine.dweights",
    .op = "combine",
    .doc = "Σ dy·x for each chosen expert in f32, an unrounded contribution",
    .kind = OpKind::rows,
    .per_token = true,
    .infer = infer_combine_dweights,
    .run = run_combine_dweights,
};

}  // namespace mantissa::graph
