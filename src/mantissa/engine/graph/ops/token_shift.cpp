// Mixtures of each token with its predecessor, and their gradients.
#include "mantissa/kernels/token_shift.h"

#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/leaf_part.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/engine/graph/ops/ring_token_shift.h"

namespace mantissa::graph {
namespace {

/// The input of token_shift.carry with the tokens before the rows.
constexpr std::size_t kBefore = 2;

void check_inputs(const NodeView& n, std::size_t first) {
  const std::int64_t channels = n.shape(0).last();
  for (std::size_t i = first; i < n.inputs.size(); ++i) {
    if (n.shape(i).count() != channels) {
      throw ShapeError("token_shift: \"{}\" is {}, but \"{}\" has {} channels",
                       n.graph.value(n.inputs[i]).name, n.shape(i).str(), n.graph.value(n.inputs[0]).name,
                       channels);
    }
  }
}

/// Names of the mixtures, which distinguish the results.
constexpr std::string_view kNames[] = {"mix0", "mix1", "mix2", "mix3", "mix4", "mix5", "mix6", "mix7"};

/// One result for each input from `first` on, which are the coefficients.
std::vector<OutputSpec> mixtures(const NodeView& n, std::size_t first) {
  const std::size_t count = n.inputs.size() - first;
  if (count == 0 || count > std::size(kNames))
    throw ShapeError("token_shift: {} mixtures; there may be 1 to {}", count, std::size(kNames));
  check_inputs(n, first);
  std::vector<OutputSpec> outputs;
  for (std::size_t j = 0; j < count; ++j) {
    outputs.push_back({n.shape(0), Role::compute});
    if (count > 1) outputs.back().name = kNames[j];
  }
  return outputs;
}

std::vector<ConstMatrix> matrices(std::span<const Argument> arguments) {
  std::vector<ConstMatrix> all;
  for (const Argument& a : arguments) all.push_back(a.in());
  return all;
}

void run_mixtures(const Call& c, const Extent& extent, std::span<const Argument> mix,
                  std::span<const Argument> mixed, const Matrix& state, const ConstMatrix& before = {}) {
  const std::vector<ConstMatrix> from = matrices(mix);
  std::vector<Matrix> to;
  for (const Argument& a : mixed) to.push_back(a.out());
  kernels::token_shift(c.ctx, extent, {c.inputs[0].width, c.inputs[0].in(), from, to, state, before});
}

/// The last input is as wide as the tokens: x, dy or a gradient; coefficients have as many elements.
std::size_t shift_workspace(const NodeView& n, const Sizes& s, const kernels::Context&) {
  const std::int64_t channels = n.shape(n.inputs.size() - 1).last();
  return s.sequence_parts == 1 ? 0 : ring_shift_workspace(s.rows(), channels, s.arithmetic);
}

Cost cost_of(const NodeView& n, std::size_t mixtures) {
  return {3.0 * static_cast<double>(n.shape(0).count()) * static_cast<double>(mixtures)};
}

// Inputs x [tokens, channels] and the mixtures' coefficients, of `channels` elements each; one result for
// each.
std::vector<OutputSpec> infer_forward(const NodeView& n) {
  return mixtures(n, 1);
}

void run_forward(const Call& c) {
  if (c.ring == nullptr) return run_mixtures(c, c.extent, c.inputs.subspan(1), c.outputs, {});
  const TokensBefore before(c);
  run_mixtures(c, before.extent(), c.inputs.subspan(1), c.outputs, {}, before.tokens());
}

/// `first` is the first coefficient, and `mixed` the first result that is a mixture.
void differentiate(GradientBuilder& b, std::size_t first, std::size_t mixed) {
  const std::size_t count = b.node().inputs.size() - first;
  std::vector<ValueId> inputs, dy;
  for (std::size_t j = 0; j < count; ++j) {
    inputs.push_back(b.input(first + j));
    dy.push_back(b.gradient(mixed + j));
  }
  if (b.needed(0)) {
    inputs.insert(inputs.end(), dy.begin(), dy.end());
    b.contribute(0, b.emit("token_shift.dx", std::move(inputs)).front());
  }
  for (std::size_t j = 0; j < count; ++j) {
    if (!b.needed(first + j)) continue;
    std::vector<std::int64_t> dims;
    for (const Dim& d : b.graph().value(b.input(first + j)).shape.dims()) dims.push_back(d.size);
    std::vector<ValueId> of_mix = {b.input(0), dy[j]};
    if (first > 1) of_mix.push_back(b.input(kBefore));
    b.contribute(first + j, b.emit("token_shift.dmix", std::move(of_mix), {{"dims", dims}}).front());
  }
}

void gradient_forward(GradientBuilder& b) {
  differentiate(b, 1, 0);
}

// Inputs: the coefficients, then the gradients of the mixtures; output dx.
std::vector<OutputSpec> infer_dx(const NodeView& n) {
  return {{n.shape(n.inputs.size() / 2), Role::arithmetic}};
}

void run_dx(const Call& c) {
  const std::size_t count = c.inputs.size() / 2;
  const std::vector<ConstMatrix> mix = matrices(c.inputs.first(count)),
                                 dy = matrices(c.inputs.subspan(count));
  kernels::TokenShiftBackward s{c.outputs[0].width, mix, dy, c.outputs[0].out(), c.arithmetic == Scalar::f64};
  if (c.ring == nullptr) return kernels::token_shift_backward(c.ctx, c.extent, s);
  const GradientsAfter after(c, s);
  s.after = after.gradients();
  s.after_rows = after.rows();
  kernels::token_shift_backward(c.ctx, c.extent, s);
}

// Inputs x, dy and, if rows continue others, the last tokens before them; output dmix, in the shape of the
// attribute "dims".
std::vector<OutputSpec> infer_dmix(const NodeView& n) {
  std::vector<Dim> dims;
  for (const std::int64_t size : n.attributes.integers("dims")) dims.push_back({size});
  return {{Shape(std::move(dims)), Role::weight_gradient, kNone, ValueKind::weight_gradient}};
}

void run_dmix(const Call& c) {
  kernels::TokenShiftMix s;
  s.channels = c.inputs[0].width;
  s.x = c.inputs[0].in();
  s.dy = c.inputs[1].in();
  if (c.inputs.size() > 2) s.before = c.inputs[2].in();
  s.dmix = c.outputs[0].out();
  s.accumulate = c.accumulate;
  if (c.ring == nullptr) return kernels::token_shift_mix(c.ctx, c.extent, s);
  const TokensBefore before(c, s.before);
  s.before = before.tokens();
  kernels::token_shift_mix(c.ctx, before.extent(), s);
}

std::vector<OutputSpec> with_state(const NodeView& n, std::size_t first) {
  std::vector<OutputSpec> outputs = mixtures(n, first);
  const ValueId state = n.inputs[1];
  const Shape& held = n.graph.value(state).shape;
  if (held.rank() != 2 || held.last() != n.shape(0).last())
    throw ShapeError("token_shift: the state {} does not hold rows of {}", held.str(), n.shape(0).last());
  outputs.insert(outputs.begin(), {held, Role::like, state, ValueKind::state, "state"});
  return outputs;
}

// Inputs x, a state [slots, channels], the coefficients; outputs the state and the mixtures.
std::vector<OutputSpec> infer_decode(const NodeView& n) {
  return with_state(n, 2);
}

void run_decode(const Call& c) {
  run_mixtures(c, c.extent, c.inputs.subspan(2), c.outputs.subspan(1), c.outputs[0].out());
}

// Inputs x, the last tokens of the rows, those of the rows before them [slots, channels], the coefficients;
// outputs the former and the mixtures.
std::vector<OutputSpec> infer_carry(const NodeView& n) {
  if (n.shape(kBefore) != n.shape(1))
    throw ShapeError("token_shift: the states {} and {} differ in shape", n.shape(kBefore).str(),
                     n.shape(1).str());
  return with_state(n, kBefore + 1);
}

void gradient_carry(GradientBuilder& b) {
  differentiate(b, kBefore + 1, 1);
}

void run_carry(const Call& c) {
  if (c.ring != nullptr) {
    const TokensBefore before(c, c.inputs[kBefore].in());
    run_mixtures(c, before.extent(), c.inputs.subspan(kBefore + 1), c.outputs.subspan(1), {},
                 before.tokens());
    return end_with_tokens(c, c.outputs[0].out());
  }
  run_mixtures(c, c.extent, c.inputs.subspan(kBefore + 1), c.outputs.subspan(1), c.outputs[0].out(),
               c.inputs[kBefore].in());
}

}  // namespace

const OpDef kTokenShift = {
    .id = "token_shift",
    .op = "token_shift",
    .doc = "x[t] + (x[t−1] − x[t])·mix for each mixture in f32, rounded once; zero before a document",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b1, .outputs = kAllOperands},
    .passed = Passed::token,
    .infer = infer_forward,
    .gradient = gradient_forward,
    .cost = [](const NodeView& n, const Sizes&) { return cost_of(n, n.inputs.size() - 1); },
    .workspace = shift_workspace,
    .run = run_forward,
};

const OpDef kTokenShiftDx = {
    .id = "token_shift.dx",
    .op = "token_shift",
    .doc = "Σ dy − q[t] + q[t+1], q = Σ mix·dy over the mixtures in f32, an unrounded contribution",
    .kind = OpKind::rows,
    .passed = Passed::token_gradient,
    .infer = infer_dx,
    .cost = [](const NodeView& n, const Sizes&) -> Cost {
      return {3.0 * static_cast<double>(n.shape(n.inputs.size() - 1).count()) *
              static_cast<double>(n.inputs.size() / 2)};
    },
    .workspace = shift_workspace,
    .run = run_dx,
};

const OpDef kTokenShiftDmix = {
    .id = "token_shift.dmix",
    .op = "token_shift",
    .doc = "dmix += Σ dy·(x[t−1] − x[t]) over leaves in f32, unrounded into grads",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b11},
    .sums_tokens = true,
    .passed = Passed::token,
    .infer = infer_dmix,
    .cost = [](const NodeView& n, const Sizes&) { return cost_of(n, 1); },
    .workspace = shift_workspace,
    .run = run_dmix,
};

const OpDef kTokenShiftDecode = {
    .id = "token_shift.decode",
    .op = "token_shift",
    .doc = "token_shift after the tokens in the segments' slots, which keep the last one",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b1, .outputs = kAllOperands & ~1U},
    .alias = 1,
    .passed = Passed::token,
    .infer = infer_decode,
    .cost = [](const NodeView& n, const Sizes&) { return cost_of(n, n.inputs.size() - 2); },
    .run = run_decode,
};

const OpDef kTokenShiftCarry = {
    .id = "token_shift.carry",
    .op = "token_shift",
    .doc = "token_shift after the last tokens of the rows that these rows continue, and their last tokens",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b1, .outputs = kAllOperands & ~1U},
    .alias = 1,
    .passed = Passed::token,
    .infer = infer_carry,
    .gradient = gradient_carry,
    .cost = [](const NodeView& n, const Sizes&) { return cost_of(n, n.inputs.size() - kBefore - 1); },
    .workspace = shift_workspace,
    .run = run_carry,
};

}  // namespace mantissa::graph
