// The recurrence over a matrix state, and its gradient.
#include "mantissa/kernels/recurrence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/engine/graph/ops/ring_recurrence.h"

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

/// Throws ShapeError unless input i has rows of states.
void check_states(const NodeView& n, std::size_t i) {
  const Shape& shape = n.shape(i);
  if (shape.rank() == 2 && shape.last() == shape_of(n.attributes).state()) return;
  throw ShapeError(fmt::format("recurrence: the state {} does not hold rows of {}", shape.str(),
                               shape_of(n.attributes).state()));
}

// The further inputs, by attributes: "initial" is the state with which every sequence begins [heads, key_dim,
// value_dim], instead of zeros; "carries" are the states that rows continue [slots, heads · key_dim ·
// value_dim].
struct Further {
  std::size_t initial = 0, before = 0;  // 0: there is none
};

/// `from` is the first further input.
Further further(const Attributes& a, std::size_t from) {
  Further f;
  if (a.flag("initial")) f.initial = from++;
  if (a.flag("carries")) f.before = from;
  return f;
}

void check_further(const NodeView& n, std::size_t from) {
  const Further f = further(n.attributes, from);
  if (f.initial > 0 && n.shape(f.initial).count() != shape_of(n.attributes).state())
    throw ShapeError(fmt::format("recurrence: the initial state {} does not have {} elements",
                                 n.shape(f.initial).str(), shape_of(n.attributes).state()));
  if (f.before > 0) check_states(n, f.before);
}

template <class C>
void set_further(const Call& c, std::size_t from, C& to) {
  const Further f = further(c.attributes, from);
  const std::int64_t state = to.shape.state();
  // As one row.
  if (f.initial > 0) to.initial = {c.inputs[f.initial].data, c.inputs[f.initial].type, state};
  if (f.before > 0) to.before = c.inputs[f.before].in();
}

// Inputs r, decay, k, v, alpha, beta [tokens, ·] and further ones; output y.
std::vector<OutputSpec> infer_forward(const NodeView& n) {
  check_inputs(n);
  check_further(n, kInputs);
  return {{n.shape(kValues), Role::compute}};
}

std::size_t workspace_forward(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  const kernels::RecurrenceShape shape = shape_of(n.attributes);
  const std::size_t bytes = kernels::recurrence_workspace(ctx, shape, s.arithmetic);
  return s.sequence_parts == 1 ? bytes
                               : aligned(bytes) + ring_recurrence_workspace(shape, s.rows(), s.arithmetic);
}

void run_forward(const Call& c) {
  kernels::Recurrence r;
  set_inputs(c, r);
  set_further(c, kInputs, r);
  r.y = c.outputs[0].out();
  c.ring == nullptr ? kernels::recurrence(c.ctx, c.extent, r) : ring_recurrence(c, r);
}

/// The gradient of a node whose result y is output `y`, and whose further inputs begin at `from`.
void differentiate(GradientBuilder& b, std::size_t from, std::size_t y) {
  std::vector<ValueId> inputs;
  for (std::size_t i = 0; i < kInputs; ++i) inputs.push_back(b.input(i));
  inputs.push_back(b.gradient(y));
  const Further f = further(b.node().attributes, from);
  if (f.initial > 0) inputs.push_back(b.input(f.initial));
  if (f.before > 0) inputs.push_back(b.input(f.before));
  const Attributes& a = b.node().attributes;
  const bool trained = f.initial > 0 && b.needed(f.initial);
  const std::vector<ValueId> d = b.emit("recurrence.grad", std::move(inputs),
                                        {{"heads", a.integer("heads")},
                                         {"key_dim", a.integer("key_dim")},
                                         {"value_dim", a.integer("value_dim")},
                                         {"initial", f.initial > 0},
                                         {"carries", f.before > 0},
                                         {"trains_initial", trained}});
  for (std::size_t i = 0; i < kInputs; ++i) b.contribute(i, d[i]);
  if (trained) b.contribute(f.initial, d[kInputs]);
}

void gradient_forward(GradientBuilder& b) {
  differentiate(b, kInputs, 0);
}

// The inputs, dy and the further inputs; the gradients of the inputs and, with "trains_initial", of the
// initial state.
std::vector<OutputSpec> infer_grad(const NodeView& n) {
  std::vector<OutputSpec> outputs;
  for (std::size_t i = 0; i < kInputs; ++i)
    outputs.push_back({n.shape(i), Role::arithmetic, kNone, ValueKind::activation, kNames[i]});
  check_further(n, kInputs + 1);
  if (n.attributes.flag("trains_initial")) {
    outputs.push_back({n.shape(further(n.attributes, kInputs + 1).initial), Role::weight_gradient, kNone,
                       ValueKind::weight_gradient, "initial"});
  }
  return outputs;
}

std::size_t workspace_grad(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  const kernels::RecurrenceShape shape = shape_of(n.attributes);
  const std::size_t bytes = kernels::recurrence_backward_workspace(ctx, shape, s.longest_row, s.arithmetic);
  if (s.sequence_parts == 1) return bytes;
  return aligned(std::max(bytes, kernels::recurrence_workspace(ctx, shape, s.arithmetic))) +
         ring_recurrence_backward_workspace(shape, s.rows(), s.arithmetic);
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
  set_further(c, kInputs + 1, r);
  if (c.attributes.flag("trains_initial")) {
    const Argument& sum = c.outputs[kInputs];
    r.dinitial = {sum.data, sum.type, r.shape.state()};
    if (!c.accumulate)
      std::memset(sum.data, 0, static_cast<std::size_t>(r.shape.state()) * bytes_of(sum.type));
  }
  if (c.ring == nullptr) return kernels::recurrence_backward(c.ctx, c.extent, r);
  kernels::Recurrence forward;
  set_inputs(c, forward);
  forward.initial = r.initial;
  forward.y = c.outputs[kValues].out();  // is written afterwards
  ring_recurrence_backward(c, forward, r);
}

// The inputs, the state and, for "initial", the initial state; outputs the state and y.
std::vector<OutputSpec> infer_decode(const NodeView& n) {
  check_inputs(n);
  check_states(n, kInputs);
  check_further(n, kInputs + 1);
  return {{n.shape(kInputs), Role::like, n.inputs[kInputs], ValueKind::state, "state"},
          {n.shape(kValues), Role::compute}};
}

void run_decode(const Call& c) {
  kernels::Recurrence r;
  set_inputs(c, r);
  set_further(c, kInputs + 1, r);
  r.state = c.outputs[0].out();
  r.y = c.outputs[1].out();
  c.ring == nullptr ? kernels::recurrence(c.ctx, c.extent, r) : ring_recurrence(c, r);
}

// The inputs, the states after the rows, and the further inputs, among them the states before the rows;
// outputs the former and y.
void gradient_carry(GradientBuilder& b) {
  differentiate(b, kInputs + 1, 1);
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
    .passed = Passed::state,
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
    .passed = Passed::state,
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
    .passed = Passed::state,
    .infer = infer_decode,
    .cost = [](const NodeView& n, const Sizes&) -> Cost { return {flops_of_elements(n, 9)}; },
    .workspace = workspace_forward,
    .run = run_decode,
};

const OpDef kRecurrenceCarry = [] {
  OpDef op = kRecurrenceDecode;
  op.id = "recurrence.carry";
  op.doc = "the recurrence from the states that the rows continue on, and the states after the rows";
  op.gradient = gradient_carry;
  return op;
}();

}  // namespace mantissa::graph
