// The ops of RWKV-7's time mixing within heads, and their gradients.
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/kernels/rwkv_heads.h"

namespace mantissa::graph {
namespace {

std::int64_t heads_of(const NodeView& n) {
  const std::int64_t heads = n.attributes.integer("heads"), width = n.shape(0).last();
  if (heads < 1 || width % heads != 0 || width / heads > kernels::kMostHeadChannels) {
    throw ShapeError("{} channels of \"{}\" in {} heads; heads must divide them into at most {} channels",
                     width, n.graph.value(n.inputs[0]).name, heads, kernels::kMostHeadChannels);
  }
  return heads;
}

/// Throws unless inputs [0, values) have the first one's shape and the next `vectors` as many elements as it
/// has channels.
void check_inputs(const NodeView& n, std::string_view op, std::size_t values, std::size_t vectors) {
  for (std::size_t i = 0; i < values + vectors; ++i) {
    if (i < values ? n.shape(i) == n.shape(0) : n.shape(i).count() == n.shape(0).last()) continue;
    throw ShapeError("{}: \"{}\" is {}, but \"{}\" is {}", op, n.graph.value(n.inputs[i]).name,
                     n.shape(i).str(), n.graph.value(n.inputs[0]).name, n.shape(0).str());
  }
}

/// The statistics of all heads: [tokens, heads].
OutputSpec of_heads(const NodeView& n, std::string_view name) {
  std::vector<Dim> dims = n.shape(0).dims();
  dims.back() = {heads_of(n)};
  return {Shape(std::move(dims)), Role::arithmetic, kNone, ValueKind::activation, name};
}

std::vector<OutputSpec> contributions(const Shape& shape, std::initializer_list<std::string_view> names) {
  std::vector<OutputSpec> outputs;
  for (const std::string_view name : names)
    outputs.push_back({shape, Role::arithmetic, kNone, ValueKind::activation, name});
  return outputs;
}

template <class S>
void set_heads(const Call& c, S& s) {
  s.heads = c.attributes.integer("heads");
  s.channels = c.inputs[0].width / s.heads;
}

Cost cost_of_channels(const NodeView& n, double flops) {
  return {flops * static_cast<double>(n.shape(0).count())};
}

/// Contributes the sum over tokens of `terms` to the gradient of a parameter, which is input i.
void contribute_sum(GradientBuilder& b, std::size_t i, ValueId terms) {
  if (!b.needed(i)) return;
  std::vector<std::int64_t> dims;
  for (const Dim& d : b.graph().value(b.input(i)).shape.dims()) dims.push_back(d.size);
  b.contribute(i, b.emit("token_sum", {terms}, {{"dims", dims}}).front());
}

// ---- keys: inputs k, a [tokens, heads · channels], k_k, k_a [heads · channels]

std::vector<OutputSpec> infer_keys(const NodeView& n) {
  check_inputs(n, "rwkv_keys", 2, 2);
  const Shape& shape = n.shape(0);
  const auto result = [&](std::string_view name) {
    return OutputSpec{shape, Role::compute, kNone, ValueKind::activation, name};
  };
  return {result("alpha"), result("beta"), result("key"), of_heads(n, "norm")};
}

void run_keys(const Call& c) {
  kernels::RwkvKeys s;
  set_heads(c, s);
  s.k = c.inputs[0].in();
  s.a = c.inputs[1].in();
  s.k_k = c.inputs[2].in();
  s.k_a = c.inputs[3].in();
  s.alpha = c.outputs[0].out();
  s.beta = c.outputs[1].out();
  s.key = c.outputs[2].out();
  s.n = c.outputs[3].out();
  kernels::rwkv_keys(c.ctx, c.outputs[0].rows, s);
}

void gradient_keys(GradientBuilder& b) {
  const std::vector<ValueId> d = b.emit("rwkv_keys.grad",
                                        {b.input(0), b.input(1), b.input(2), b.input(3), b.output(3),
                                         b.gradient(0), b.gradient(1), b.gradient(2)},
                                        b.node().attributes);
  b.contribute(0, d[0]);
  b.contribute(1, d[1]);
  contribute_sum(b, 2, d[2]);
  contribute_sum(b, 3, d[3]);
}

// Inputs k, a, k_k, k_a, n, dalpha, dbeta, dkey.
std::vector<OutputSpec> infer_keys_grad(const NodeView& n) {
  return contributions(n.shape(0), {"k", "a", "k_k", "k_a"});
}

void run_keys_grad(const Call& c) {
  kernels::RwkvKeysBackward s;
  set_heads(c, s);
  s.k = c.inputs[0].in();
  s.a = c.inputs[1].in();
  s.k_k = c.inputs[2].in();
  s.k_a = c.inputs[3].in();
  s.n = c.inputs[4].in();
  s.dalpha = c.inputs[5].in();
  s.dbeta = c.inputs[6].in();
  s.dkey = c.inputs[7].in();
  s.dk = c.outputs[0].out();
  s.da = c.outputs[1].out();
  s.dk_k = c.outputs[2].out();
  s.dk_a = c.outputs[3].out();
  kernels::rwkv_keys_backward(c.ctx, c.outputs[0].rows, s);
}

// ---- output: inputs y, r, key, v, g [tokens, heads · channels], r_k, gain, bias [heads · channels]

constexpr std::size_t kOutputInputs = 8;

std::vector<OutputSpec> infer_output(const NodeView& n) {
  check_inputs(n, "rwkv_output", 5, 3);
  return {{n.shape(0), Role::compute}, of_heads(n, "mean"), of_heads(n, "rstd"), of_heads(n, "weight")};
}

template <class S>
void set_output_inputs(const Call& c, S& s) {
  set_heads(c, s);
  s.y = c.inputs[0].in();
  s.r = c.inputs[1].in();
  s.key = c.inputs[2].in();
  s.v = c.inputs[3].in();
  s.g = c.inputs[4].in();
  s.r_k = c.inputs[5].in();
  s.gain = c.inputs[6].in();
  s.bias = c.inputs[7].in();
}

void run_output(const Call& c) {
  kernels::RwkvOutput s;
  set_output_inputs(c, s);
  s.eps = c.attributes.number("eps");
  s.o = c.outputs[0].out();
  s.mean = c.outputs[1].out();
  s.rstd = c.outputs[2].out();
  s.s = c.outputs[3].out();
  kernels::rwkv_output(c.ctx, c.outputs[0].rows, s);
}

void gradient_output(GradientBuilder& b) {
  std::vector<ValueId> inputs;
  for (std::size_t i = 0; i < kOutputInputs; ++i) inputs.push_back(b.input(i));
  for (std::size_t o = 1; o < 4; ++o) inputs.push_back(b.output(o));
  inputs.push_back(b.gradient(0));
  const std::vector<ValueId> d = b.emit("rwkv_output.grad", std::move(inputs), b.node().attributes);
  for (std::size_t i = 0; i < 5; ++i) b.contribute(i, d[i]);
  for (std::size_t i = 5; i < kOutputInputs; ++i) contribute_sum(b, i, d[i]);
}

// The inputs, mean, rstd, weight and do.
std::vector<OutputSpec> infer_output_grad(const NodeView& n) {
  return contributions(n.shape(0), {"y", "r", "key", "v", "g", "r_k", "gain", "bias"});
}

void run_output_grad(const Call& c) {
  kernels::RwkvOutputBackward s;
  set_output_inputs(c, s);
  s.mean = c.inputs[kOutputInputs].in();
  s.rstd = c.inputs[kOutputInputs + 1].in();
  s.s = c.inputs[kOutputInputs + 2].in();
  s.dout = c.inputs[kOutputInputs + 3].in();
  s.dy = c.outputs[0].out();
  s.dr = c.outputs[1].out();
  s.dkey = c.outputs[2].out();
  s.dv = c.outputs[3].out();
  s.dg = c.outputs[4].out();
  s.dr_k = c.outputs[5].out();
  s.dgain = c.outputs[6].out();
  s.dbias = c.outputs[7].out();
  kernels::rwkv_output_backward(c.ctx, c.outputs[0].rows, s);
}

}  // namespace

const OpDef kRwkvKeys = {
    .id = "rwkv_keys",
    .op = "rwkv_keys",
    .doc =
        "α = −κ̂, β = κ̂·a, κ̂ = k·k_k over its norm in each head, and k·(1 + (a − 1)·k_a); f32, rounded once",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b11, .outputs = 0b111},
    .per_token = true,
    .infer = infer_keys,
    .gradient = gradient_keys,
    .cost = [](const NodeView& n, const Sizes&) { return cost_of_channels(n, 9); },
    .run = run_keys,
};

const OpDef kRwkvKeysGrad = {
    .id = "rwkv_keys.grad",
    .op = "rwkv_keys",
    .doc = "dk, da and the terms of dk_k and dk_a in f32, unrounded contributions",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b11100011, .outputs = 0b1111},
    .per_token = true,
    .infer = infer_keys_grad,
    .cost = [](const NodeView& n, const Sizes&) { return cost_of_channels(n, 20); },
    .run = run_keys_grad,
};

const OpDef kRwkvOutput = {
    .id = "rwkv_output",
    .op = "rwkv_output",
    .doc = "(norm(y) over each head + (Σ r·k·r_k)·v)·g in f32, rounded once",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b11111, .outputs = 0b1},
    .per_token = true,
    .infer = infer_output,
    .gradient = gradient_output,
    .cost = [](const NodeView& n, const Sizes&) { return cost_of_channels(n, 14); },
    .run = run_output,
};

const OpDef kRwkvOutputGrad = {
    .id = "rwkv_output.grad",
    .op = "rwkv_output",
    .doc = "dy, dr, dk, dv, dg and the terms of dr_k, dgain and dbias in f32, unrounded contributions",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b100000011111, .outputs = kAllOperands},
    .per_token = true,
    .infer = infer_output_grad,
    .cost = [](const NodeView& n, const Sizes&) { return cost_of_channels(n, 30); },
    .run = run_output_grad,
};

}  // namespace mantissa::graph
