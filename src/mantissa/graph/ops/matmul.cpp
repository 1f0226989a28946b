// y = x·Wᵀ (+ b): a Linear layer, and its two gradients.
#include "mantissa/kernels/gemm.h"

#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/graph/op.h"
#include "mantissa/graph/ops/ops.h"
#include "mantissa/kernels/reference/gemm.h"

namespace mantissa::graph {
namespace {

using kernels::Gemm;
using kernels::GemmOperand;

// ---- forward: inputs x [tokens, in], W [out, in]; output y [tokens, out]

std::vector<OutputSpec> infer_forward(const NodeView& n) {
  const Shape& x = n.shape(0);
  const Shape& w = n.shape(1);
  if (w.rank() != 2 || x.rank() < 1 || w.last() != x.last()) {
    throw ShapeError(
        fmt::format("matmul: weight \"{}\" is {}, but its input is {}; the weight must be [out, {}]",
                    n.graph.value(n.inputs[1]).name, w.str(), x.str(), x.last()));
  }
  std::vector<Dim> dims = x.dims();
  dims.back().size = w.dim(0).size;
  const bool logits = n.attributes.flag("logits");
  return {{Shape(std::move(dims)), logits ? Role::output : Role::compute}};
}

Cost cost_forward(const NodeView& n, const Sizes&) {
  return {2.0 * static_cast<double>(n.shape(0).leading()) * static_cast<double>(n.shape(1).count())};
}

std::size_t workspace_forward(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  return kernels::gemm_workspace(ctx, n.shape(0).leading(), n.shape(1).dim(0).size, n.shape(1).last(),
                                 s.arithmetic, s.parts);
}

void set_epilogue(Gemm& g, const Call& c) {
  g.accumulator = c.accumulator;
  g.c = c.outputs[0].out();
  g.rounded = c.outputs[0].rounded;
  if (c.addend.data != nullptr) g.addend = c.addend.in();
}

void run_forward(const Call& c) {
  const Argument& x = c.inputs[0];
  const Argument& w = c.inputs[1];
  Gemm g;
  g.m = x.rows;
  g.n = w.rows;
  g.k = x.width;
  g.a = GemmOperand{x.in(), x.operand, false, x.unscale()};
  g.b = GemmOperand{w.in(), w.operand, true, w.unscale()};
  set_epilogue(g, c);
  kernels::gemm(c.ctx, g);
}

void gradient_forward(GradientBuilder& b) {
  const ValueId dy = b.gradient(0);
  if (b.needed(0)) b.contribute(0, b.emit("matmul.dx", {dy, b.input(1)}).front());
  if (b.needed(1)) b.contribute(1, b.emit("matmul.dw", {dy, b.input(0)}).front());
}

// ---- dx: inputs dy [tokens, out], W [out, in]; output [tokens, in]

std::vector<OutputSpec> infer_dx(const NodeView& n) {
  std::vector<Dim> dims = n.shape(0).dims();
  dims.back().size = n.shape(1).last();
  return {{Shape(std::move(dims)), Role::arithmetic}};
}

std::size_t workspace_dx(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  return kernels::gemm_workspace(ctx, n.shape(0).leading(), n.shape(1).last(), n.shape(1).dim(0).size,
                                 s.arithmetic, s.parts);
}

void run_dx(const Call& c) {
  const Argument& dy = c.inputs[0];
  const Argument& w = c.inputs[1];
  Gemm g;
  g.m = dy.rows;
  g.n = w.width;
  g.k = dy.width;
  g.a = GemmOperand{dy.in(), dy.operand, false, dy.unscale()};
  g.b = GemmOperand{w.in(), w.operand, false, w.unscale()};
  set_epilogue(g, c);
  kernels::gemm(c.ctx, g);
}

// ---- dw: inputs dy [tokens, out], x [tokens, in]; output [out, in], summed over the leaves of the token
// axis

std::vector<OutputSpec> infer_dw(const NodeView& n) {
  return {{Shape{n.shape(0).last(), n.shape(1).last()}, Role::weight_gradient, kNone,
           ValueKind::weight_gradient}};
}

Cost cost_dw(const NodeView& n, const Sizes&) {
  return {2.0 * static_cast<double>(n.shape(0).leading()) * static_cast<double>(n.shape(0).last()) *
          static_cast<double>(n.shape(1).last())};
}

std::size_t workspace_dw(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  return kernels::gemm_workspace(ctx, n.shape(0).last(), n.shape(1).last(), n.shape(0).leading(),
                                 s.arithmetic, s.parts);
}

void run_dw(const Call& c) {
  const Argument& dy = c.inputs[0];
  const Argument& x = c.inputs[1];
  Gemm g;
  g.m = dy.width;
  g.n = x.width;
  g.k = dy.rows;
  g.a = GemmOperand{dy.in(), dy.operand, true, dy.unscale()};
  g.b = GemmOperand{x.in(), x.operand, false, x.unscale()};
  g.c = c.outputs[0].out();
  if (g.c.type == c.arithmetic) {
    g.accumulate = c.accumulate;
  } else if (c.accumulate) {
    g.addend = g.c;  // the micro-batch's sum is rounded with it, once
  }
  // One entry per sequence: each is a row of its own in the sum's order.
  std::vector<Row> entries;
  if (dy.axis == Axis::rows) {
    for (std::int64_t r = 0; r < dy.rows; ++r) entries.push_back({r, 1});
  }
  g.rows = dy.axis == Axis::rows ? std::span<const Row>(entries) : c.extent.rows;
  g.rows_per_leaf = c.extent.rows_per_leaf;
  g.accumulator = c.accumulator;
  kernels::gemm(c.ctx, g);
}

// ---- references

/// C of the product g whose operands are `a` and `b` in double.
void reference_product(const ReferenceCall& c, Gemm g, const ReferenceOperand& a, bool a_transposed,
                       const ReferenceOperand& b, bool b_transposed) {
  g.a = GemmOperand{{a.data(), Scalar::f64, a.width}, Scalar::f64, a_transposed};
  g.b = GemmOperand{{b.data(), Scalar::f64, b.width}, Scalar::f64, b_transposed};
  g.c = {c.outputs[0].data(), Scalar::f64, c.outputs[0].width};
  g.m = c.outputs[0].rows;
  g.n = c.outputs[0].width;
  c.outputs[0].values = kernels::reference::gemm(g).c;
}

void reference_forward(const ReferenceCall& c) {
  Gemm g;
  g.k = c.inputs[0].width;
  reference_product(c, g, c.inputs[0], false, c.inputs[1], true);
}

void reference_dx(const ReferenceCall& c) {
  Gemm g;
  g.k = c.inputs[0].width;
  reference_product(c, g, c.inputs[0], false, c.inputs[1], false);
}

void reference_dw(const ReferenceCall& c) {
  Gemm g;
  g.k = c.inputs[0].rows;
  g.rows = c.extent.rows;
  reference_product(c, g, c.inputs[0], true, c.inputs[1], false);
}

}  // namespace

const OpDef kMatmul = {
    .id = "matmul",
    .op = "matmul",
    .doc = "y = x·Wᵀ; operands rounded to compute, f32 sum, rounded once",
    .reads = {Read::matmul, Read::matmul},
    .operands = {"input", "weight"},
    .takes_addend = true,
    .infer = infer_forward,
    .gradient = gradient_forward,
    .cost = cost_forward,
    .workspace = workspace_forward,
    .run = run_forward,
    .reference = reference_forward,
};

const OpDef kMatmulDx = {
    .id = "matmul.dx",
    .op = "matmul",
    .doc = "dx = dy·W; operands rounded to compute, f32 sum, unrounded contribution",
    .reads = {Read::matmul, Read::matmul},
    .operands = {"gradient", "weight"},
    .takes_addend = true,
    .infer = infer_dx,
    .cost = cost_forward,
    .workspace = workspace_dx,
    .run = run_dx,
    .reference = reference_dx,
};

const OpDef kMatmulDw = {
    .id = "matmul.dw",
    .op = "matmul",
    .doc = "dW += dyᵀ·x; operands rounded to compute, f32 sum over leaves, unrounded into grads",
    .reads = {Read::matmul, Read::matmul},
    .operands = {"gradient", "input"},
    .rounds_gradient = true,
    .infer = infer_dw,
    .cost = cost_dw,
    .workspace = workspace_dw,
    .run = run_dw,
    .reference = reference_dw,
};

}  // namespace mantissa::graph
