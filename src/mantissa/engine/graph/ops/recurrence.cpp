// The recurrence over a matrix state, and its gradient.
#include "mantissa/kernels/recurrence.h"

#include <fmt/format.h>

#include <array>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/graph/ops/ops.h"

namespace mantissa::graph {
namespace {

constexpr std::size_t kDecay = 1, kValues = 3, kInputs = 6;  // r, decay, k, v, alpha, beta
constexpr std::array kNames = {"r", "decay", "k", "v", "alpha", "beta"};

kernels::RecurrenceShape shape_of(const Attributes& a) {
  return {a.integer("heads"), a.integer("key_dim"), a.integer("value_dim")};
}

void check_inputs(const NodeView& n) {
  const kernels::RecurrenceShape s = shape_of(n.attributes);
  for (std::size_t i = 0; i < kInputs; ++i) {
    const std::int64_t width = i == kValues ? s.values() : s.keys();
    const bool of_heads = i == kDecay && n.shape(i).last() == s.heads;
    if (n.shape(i).last() == width || of_heads) continue;
    throw ShapeError(fmt::format("recurrence: {} is {}, but {} heads of size {} × {} need [·, {}]", kNames[i],
                                 n.shape(i).str(), s.heads, s.key_dim, s.value_dim, width));
  }
}

double flops_of_elements(const NodeView& n, double flops) {
  return flops * static_cast<double>(n.shape(0).dim(0).size * shape_of(n.attributes).state());
}

/// Sets the members that both passes have.
template <class C>
void set_inputs(const Call& c, C& to) {
  to.shape = shape_of(c.attributes);
  to.head_decay = c.inputs[kDecay].width == to.shape.heads && to.shape.key_dim > 1;
  to.r = c.inputs[0].in();
  to.decay = c.inputs[kDecay].in();
  to.k = c.inputs[2].in();
  to.v = c.inputs[kValues].in();
  to.alpha = c.inputs[4].in();
  to.beta = c.inputs[5].in();
  to.arithmetic = c.arithmetic;
  to.kept = c.interior;
  to.rounding = {c.rounding, c.random_name};
}

// Inputs r, decay, k, v, alpha, beta [tokens, ·] and, for decoding, a state [slots, heads · key_dim ·
// value_dim]; outputs y and the state. In training all sequences begin with a state of zeros.
std::vector<OutputSpec> infer_forward(const NodeView& n) {
  check_inputs(n);
  return {{n.shape(kValues), Role::compute}};
}

std::size_t workspace_forward(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  return kernels::recurrence_workspace(ctx, shape_of(n.attributes), s.arithmetic);
}

void run_forward(const Call& c) {
  kernels::Recurrence r;
  set_inputs(c, r);
  r.y = c.outputs[0].out();
  kernels::recurrence(c.ctx, c.extent, r);
}

void gradient_forward(GradientBuilder& b) {
  std::vector<ValueId> inputs;
  for (std::size_t i = 0; i < kInputs; ++i) inputs.push_back(b.input(i));
  inputs.push_back(b.gradient(0));
  const std::vector<ValueId> d = b.emit("recurrence.grad", std::move(inputs), b.node().attributes);
  for (std::size_t i = 0; i < kInputs; ++i) b.contribute(i, d[i]);
}

// The inputs and dy; their gradients.
std::vector<OutputSpec> infer_grad(const NodeView& n) {
  std::vector<OutputSpec> outputs;
  for (std::size_t i = 0; i < kInputs; ++i)
    outputs.push_back({n.shape(i), Role::arithmetic, kNone, ValueKind::activation, kNames[i]});
  return outputs;
}

std::size_t workspace_grad(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  return kernels::recurrence_backward_workspace(ctx, shape_of(n.attributes), s.longest_row, s.arithmetic);
}

void run_grad(const Call& c) {
  kernels::RecurrenceBackward r;
  set_inputs(c, r);
  r.dy = c.inputs[kInputs].in();
  r.dr = c.outputs[0].out();
  r.ddecay = c.outputs[kDecay].out();
  r.dk = c.outputs[2].out();
  r.dv = c.outputs[kValues].out();
  r.dalpha = c.outputs[4].out();
  r.dbeta = c.outputs[5].out();
  kernels::recurrence_backward(c.ctx, c.extent, r);
}

// The inputs and the state; outputs the state and y.
std::vector<OutputSpec> infer_decode(const NodeView& n) {
  check_inputs(n);
  const ValueId state = n.inputs[kInputs];
  if (n.shape(kInputs).rank() != 2 || n.shape(kInputs).last() != shape_of(n.attributes).state())
    throw ShapeError(fmt::format("recurrence: the state {} does not hold rows of {}", n.shape(kInputs).str(),
                                 shape_of(n.attributes).state()));
  return {{n.shape(kInputs), Role::like, state, ValueKind::state, "state"},
          {n.shape(kValues), Role::compute}};
}

void run_decode(const Call& c) {
  kernels::Recurrence r;
  set_inputs(c, r);
  r.state = c.outputs[0].out();
  r.y = c.outputs[1].out();
  kernels::recurrence(c.ctx, c.extent, r);
}

}  // namespace

const OpDef kRecurrence = {
    .id = "recurrence",
    .op = "recurrence",
    .doc = "S ← S·diag(exp(decay)) + (S·α)βᵀ + v·kᵀ, y = S·r for each head; S and sums f32, y rounded once",
    .kind = OpKind::recurrence,
    .reads = {Read::value},
    .strided = {.inputs = 0b111111, .outputs = 0b1},
    .interior = "state",
    .infer = infer_forward,
    .gradient = gradient_forward,
    .cost = [](const NodeView& n, const Sizes&) -> Cost { return {flops_of_elements(n, 9)}; },
    .workspace = workspace_forward,
    .run = run_forward,
};

const OpDef kRecurrenceGrad = {
    .id = "recurrence.grad",
    .op = "recurrence",
    .doc = "the gradients of r, decay, k, v, α and β with the states recomputed, unrounded contributions",
    .kind = OpKind::recurrence,
    .reads = {Read::value},
    .strided = {.inputs = 0b1111111, .outputs = 0b111111},
    .interior = "state",
    .infer = infer_grad,
    .cost = [](const NodeView& n, const Sizes&) -> Cost { return {flops_of_elements(n, 19)}; },
    .workspace = workspace_grad,
    .run = run_grad,
    .executed_flops = [](const NodeView& n, const Sizes&) { return flops_of_elements(n, 33); },
};

const OpDef kRecurrenceDecode = {
    .id = "recurrence.decode",
    .op = "recurrence",
    .doc = "the recurrence from the states of the segments' slots on, which it replaces",
    .kind = OpKind::recurrence,
    .reads = {Read::value},
    .strided = {.inputs = 0b111111, .outputs = 0b10},
    .alias = kInputs,
    .interior = "state",
    .infer = infer_decode,
    .cost = [](const NodeView& n, const Sizes&) -> Cost { return {flops_of_elements(n, 9)}; },
    .workspace = workspace_forward,
    .run = run_decode,
};

}  // namespace mantissa::graph
