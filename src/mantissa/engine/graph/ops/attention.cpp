// Causal grouped-query attention and its gradient, over the whole prefix or a sliding window, with optional
// soft-capping of scores.
#include "mantissa/kernels/attention.h"

#include <cmath>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/engine/graph/ops/ring_attention.h"

namespace mantissa::graph {
namespace {

kernels::AttentionShape shape_of(const Attributes& a) {
  kernels::AttentionShape s;
  s.heads = a.integer("heads");
  s.kv_heads = a.integer("kv_heads");
  s.head_dim = a.integer("head_dim");
  s.scale = a.number("scale", 1.0 / std::sqrt(static_cast<double>(s.head_dim)));
  s.window = a.integer("window", 0);
  s.soft_cap = a.number("soft_cap", 0);
  return s;
}

kernels::Dropout dropout_of(const Call& c) {
  if (!c.extent.trains) return {};
  return {c.attributes.number("dropout", 0.0), static_cast<std::uint64_t>(c.attributes.integer("name", 0)),
          c.extent.seed};
}

void check_settings(const kernels::AttentionShape& s) {
  if (s.window < 0)
    throw ShapeError("attention: window: expected 0 (the whole prefix) or more, got {}", s.window);
  if (!std::isfinite(s.soft_cap) || s.soft_cap < 0)
    throw ShapeError("attention: soft_cap: expected 0 (none) or a finite number above it, got {}",
                     s.soft_cap);
  if (!std::isfinite(s.scale))
    throw ShapeError("attention: scale: expected a finite number, got {}", s.scale);
}

// Inputs q, k, v; k and v are [tokens, kv_heads·d] or caches [slots, capacity, kv_heads·d]. Outputs out and
// lse.
std::vector<OutputSpec> infer_forward(const NodeView& n) {
  const kernels::AttentionShape s = shape_of(n.attributes);
  check_settings(s);
  if (n.shape(0).last() != s.heads * s.head_dim || n.shape(1).last() != s.kv_heads * s.head_dim ||
      n.shape(2).last() != s.kv_heads * s.head_dim || s.heads % s.kv_heads != 0) {
    throw ShapeError("attention: q {}, k {}, v {} do not fit {} heads and {} key-value heads of size {}",
                     n.shape(0).str(), n.shape(1).str(), n.shape(2).str(), s.heads, s.kv_heads, s.head_dim);
  }
  Shape lse = Shape::tokens(n.shape(0).dim(0).size, {s.heads});
  return {{n.shape(0), Role::compute},
          {std::move(lse), Role::arithmetic, kNone, ValueKind::activation, "lse"}};
}

/// Returns the number of keys visible to a query in a sequence of `length` tokens, averaged over positions.
double mean_visible_keys(double length, double window) {
  if (window == 0 || window >= length) return (length + 1) / 2;
  return window - window * (window - 1) / (2 * length);
}

/// Returns the flops of one product over the visible pairs, for positions up to the longest row.
double product_flops(const NodeView& n, const Sizes& s) {
  const kernels::AttentionShape a = shape_of(n.attributes);
  return 2.0 * static_cast<double>(n.shape(0).dim(0).size) *
         mean_visible_keys(static_cast<double>(s.longest_row * s.sequence_parts),
                           static_cast<double>(a.window)) *
         static_cast<double>(a.heads * a.head_dim);
}

/// Scores that a soft cap bounds: a product has two operations per score and element of a head.
double capped_scores(const NodeView& n, const Sizes& s) {
  const kernels::AttentionShape a = shape_of(n.attributes);
  return a.soft_cap == 0 ? 0 : product_flops(n, s) / (2.0 * static_cast<double>(a.head_dim));
}

Cost cost_forward(const NodeView& n, const Sizes& s) {
  return {2.0 * product_flops(n, s), capped_scores(n, s)};
}
Cost cost_grad(const NodeView& n, const Sizes& s) {
  return {4.0 * product_flops(n, s), capped_scores(n, s)};
}

std::size_t workspace_forward(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  const kernels::AttentionShape a = shape_of(n.attributes);
  const std::int64_t tokens = n.shape(0).dim(0).size;
  const std::size_t bytes =
      kernels::attention_workspace(ctx, a, tokens, s.longest_row, s.arithmetic, s.parts);
  if (s.sequence_parts == 1) return bytes;
  return aligned(bytes) + ring_workspace(a, tokens, s.arithmetic, s.inputs[1], s.inputs[2]);
}

std::size_t workspace_grad(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  const kernels::AttentionShape a = shape_of(n.attributes);
  const std::int64_t tokens = n.shape(0).dim(0).size;
  const std::size_t bytes =
      kernels::attention_backward_workspace(ctx, a, tokens, s.longest_row, s.arithmetic, s.parts);
  if (s.sequence_parts == 1) return bytes;
  return aligned(bytes) + ring_backward_workspace(a, tokens, s.arithmetic, s.inputs[1], s.inputs[2]);
}

void run_forward(const Call& c) {
  kernels::Attention a;
  a.shape = shape_of(c.attributes);
  a.q = c.inputs[0].in();
  a.k = c.inputs[1].in();
  a.v = c.inputs[2].in();
  a.out = c.outputs[0].out();
  a.lse = c.outputs[1].out();
  a.operand = c.compute;
  a.accumulator = c.accumulator;
  a.softmax = c.interior;
  a.cache.slots = c.attributes.integer("slots", 0);
  a.cache.capacity = c.attributes.integer("capacity", 0);
  a.dropout = dropout_of(c);
  c.ring == nullptr ? kernels::attention(c.ctx, c.extent, a) : ring_attention(c, a);
}

void gradient_forward(GradientBuilder& b) {
  const std::vector<ValueId> d =
      b.emit("attention.grad", {b.input(0), b.input(1), b.input(2), b.output(0), b.output(1), b.gradient(0)},
             b.node().attributes);
  for (std::size_t i = 0; i < 3; ++i) b.contribute(i, d[i]);
}

// Inputs q, k, v, out, lse, dout; outputs dq, dk, dv.
std::vector<OutputSpec> infer_grad(const NodeView& n) {
  return {{n.shape(0), Role::arithmetic, kNone, ValueKind::activation, "q"},
          {n.shape(1), Role::arithmetic, kNone, ValueKind::activation, "k"},
          {n.shape(2), Role::arithmetic, kNone, ValueKind::activation, "v"}};
}

void run_grad(const Call& c) {
  kernels::AttentionBackward a;
  a.shape = shape_of(c.attributes);
  a.q = c.inputs[0].in();
  a.k = c.inputs[1].in();
  a.v = c.inputs[2].in();
  a.out = c.inputs[3].in();
  a.lse = c.inputs[4].in();
  a.dout = c.inputs[5].in();
  a.dq = c.outputs[0].out();
  a.dk = c.outputs[1].out();
  a.dv = c.outputs[2].out();
  a.operand = c.compute;
  a.accumulator = c.accumulator;
  a.softmax = c.interior;
  a.dropout = dropout_of(c);
  c.ring == nullptr ? kernels::attention_backward(c.ctx, c.extent, a) : ring_attention_backward(c, a);
}

}  // namespace

const OpDef kAttention = {
    .id = "attention",
    .op = "attention",
    .doc =
        "out = softmax(scores)·v over each query's window of earlier keys, scores scale·q·kᵀ, or "
        "cap·tanh(scale·q·kᵀ/cap); scores and softmax f32, P rounded to compute, out rounded once",
    .kind = OpKind::attention,
    .strided = {.inputs = 0b111, .outputs = 0b1},
    .made_factors = "P",
    .interior = "softmax",
    .passed = Passed::keys,
    .infer = infer_forward,
    .gradient = gradient_forward,
    .cost = cost_forward,
    .workspace = workspace_forward,
    .run = run_forward,
};

const OpDef kAttentionGrad = {
    .id = "attention.grad",
    .op = "attention",
    .doc =
        "dq, dk, dv with P recomputed; dS in f32, times 1 − tanh² under a soft cap; P and dS rounded to "
        "compute, unrounded contributions",
    .kind = OpKind::attention,
    .strided = {.inputs = 0b101111, .outputs = 0b111},
    .made_factors = "P and dS",
    .interior = "softmax",
    .passed = Passed::keys,
    .infer = infer_grad,
    .cost = cost_grad,
    .workspace = workspace_grad,
    .run = run_grad,
};

}  // namespace mantissa::graph
