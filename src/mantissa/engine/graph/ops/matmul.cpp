// y = x·Wᵀ + b: a Linear layer, and its gradients. Attributes: "transposed": the weight is [in, out], y = x·W
// + b. "unrounded": the result is a term of a sum that is rounded once. "logits", "score": the result is an
// output of the model.
#include "mantissa/kernels/gemm.h"

#include <fmt/format.h>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/op.h"
#include "mantissa/engine/graph/ops/factor.h"
#include "mantissa/engine/graph/ops/leaf_part.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/engine/graph/ops/sum_rows.h"

namespace mantissa::graph {
namespace {

using kernels::Gemm;
using kernels::GemmOperand;

bool is_transposed(const Attributes& a) {
  return a.flag("transposed");
}

// ---- forward: inputs x [tokens, in], W [out, in] or [in, out], optionally a bias [out]; output y [tokens,
// out]

void check_weight(const NodeView& n, std::size_t in_axis) {
  const Shape& x = n.shape(0);
  const Shape& w = n.shape(1);
  if (w.rank() == 2 && x.rank() >= 1 && w.dim(in_axis).size == x.last()) return;
  const std::string want =
      in_axis == 0 ? fmt::format("[{}, out]", x.last()) : fmt::format("[out, {}]", x.last());
  throw ShapeError("matmul: weight \"{}\" is {}, but its input is {}; the weight must be {}",
                   n.graph.value(n.inputs[1]).name, w.str(), x.str(), want);
}

std::vector<OutputSpec> infer_forward(const NodeView& n) {
  const std::size_t in_axis = is_transposed(n.attributes) ? 0 : 1;
  check_weight(n, in_axis);
  const std::int64_t out = n.shape(1).dim(1 - in_axis).size;
  if (n.inputs.size() > 2 && n.shape(2) != Shape{out}) {
    throw ShapeError("matmul: bias \"{}\" is {}, but weight \"{}\" has {} outputs; it must be [{}]",
                     n.graph.value(n.inputs[2]).name, n.shape(2).str(), n.graph.value(n.inputs[1]).name, out,
                     out);
  }
  std::vector<Dim> dims = n.shape(0).dims();
  dims.back().size = out;
  const bool output = n.attributes.flag("logits") || n.attributes.flag("score");
  const Role role = output ? Role::output : n.attributes.flag("unrounded") ? Role::arithmetic : Role::compute;
  return {{Shape(std::move(dims)), role}};
}

Cost cost_forward(const NodeView& n, const Sizes&) {
  return {2.0 * static_cast<double>(n.shape(0).leading()) * static_cast<double>(n.shape(1).count())};
}

std::size_t workspace_rows(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  const std::int64_t depth = n.shape(0).last();
  return kernels::gemm_workspace(ctx, n.shape(0).leading(), n.shape(1).count() / depth, depth, s.arithmetic,
                                 s.parts);
}

/// The rows of the first input times the weight or its transpose, plus the bias if there is one.
Gemm product_of_rows(const Call& c, bool transpose) {
  Gemm g;
  g.m = c.inputs[0].rows;
  g.n = c.outputs[0].width;
  g.k = c.inputs[0].width;
  g.a = factor(c.inputs[0], false);
  g.b = factor(c.inputs[1], transpose);
  if (c.inputs.size() > 2) {
    g.bias = c.inputs[2].data;
    g.bias_type = c.inputs[2].type;
  }
  g.accumulator = c.accumulator;
  g.c = c.outputs[0].out();
  g.rounded = c.outputs[0].rounded;
  if (c.addend.data != nullptr) g.addend = c.addend.in();
  return g;
}

Gemm product_forward(const Call& c) {
  return product_of_rows(c, !is_transposed(c.attributes));
}

void run_forward(const Call& c) {
  kernels::gemm(c.ctx, product_forward(c));
}

void gradient_forward(GradientBuilder& b) {
  const ValueId dy = b.gradient(0);
  const Attributes layout{{"transposed", is_transposed(b.node().attributes)},
                          {"score", b.node().attributes.flag("score")}};
  if (b.needed(0)) b.contribute(0, b.emit("matmul.dx", {dy, b.input(1)}, layout).front());
  if (b.needed(1)) b.contribute(1, b.emit("matmul.dw", {dy, b.input(0)}, layout).front());
  if (b.node().inputs.size() > 2 && b.needed(2)) b.contribute(2, b.emit("token_sum", {dy}).front());
}

// ---- dx: inputs dy [tokens, out], W; output [tokens, in]

std::vector<OutputSpec> infer_dx(const NodeView& n) {
  std::vector<Dim> dims = n.shape(0).dims();
  dims.back().size = n.shape(1).dim(is_transposed(n.attributes) ? 0 : 1).size;
  return {{Shape(std::move(dims)), Role::arithmetic}};
}

void run_dx(const Call& c) {
  kernels::gemm(c.ctx, product_of_rows(c, is_transposed(c.attributes)));
}

// ---- dw: inputs dy [tokens, out], x [tokens, in]; output of W's shape, summed over the leaves of the token
// axis

/// The inputs whose features are the rows and the columns of dW.
struct Sides {
  std::size_t rows, columns;
};

Sides sides_of_dw(const Attributes& a) {
  return is_transposed(a) ? Sides{1, 0} : Sides{0, 1};
}

std::vector<OutputSpec> infer_dw(const NodeView& n) {
  const Sides side = sides_of_dw(n.attributes);
  return {{Shape{n.shape(side.rows).last(), n.shape(side.columns).last()}, Role::weight_gradient, kNone,
           ValueKind::weight_gradient}};
}

Cost cost_dw(const NodeView& n, const Sizes&) {
  return {2.0 * static_cast<double>(n.shape(0).leading()) * static_cast<double>(n.shape(0).last()) *
          static_cast<double>(n.shape(1).last())};
}

std::size_t workspace_dw(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  const Sides side = sides_of_dw(n.attributes);
  return kernels::gemm_workspace(ctx, n.shape(side.rows).last(), n.shape(side.columns).last(),
                                 n.shape(0).leading(), s.arithmetic, s.parts);
}

void run_dw(const Call& c) {
  const Sides side = sides_of_dw(c.attributes);
  Gemm g;
  g.m = c.inputs[side.rows].width;
  g.n = c.inputs[side.columns].width;
  g.k = c.inputs[0].rows;
  g.a = factor(c.inputs[side.rows], true);
  g.b = factor(c.inputs[side.columns], false);
  g.swap_parts = is_transposed(c.attributes);
  g.accumulator = c.accumulator;
  g.losses = c.losses;
  if (c.leaf != nullptr) {
    g.c = c.leaf->sum.out();
    g.accumulate = g.continue_blocks = !c.leaf->opens;
    kernels::gemm(c.ctx, g);
    return close_leaf(c);
  }
  g.c = c.outputs[0].out();
  if (g.c.type == c.arithmetic) {
    g.accumulate = c.accumulate;
  } else if (c.accumulate) {
    g.addend = g.c;  // the micro-batch's sum is rounded together with it, once
  }
  const SumRows rows(c.inputs[0], c.extent);
  g.rows = rows.rows();
  g.rows_per_leaf = c.extent.rows_per_leaf;
  kernels::gemm(c.ctx, g);
}

}  // namespace

const OpDef kMatmul = {
    .id = "matmul",
    .op = "matmul",
    .doc = "y = x·Wᵀ + b; operands rounded to compute, f32 sum, b added to it, rounded once",
    .kind = OpKind::product,
    .reads = {Read::matmul, Read::matmul, Read::value},
    .operands = {"input", "weight"},
    .strided = {.inputs = 0b1, .outputs = 0b1},
    .quantized = 1,
    .takes_addend = true,
    .rounds_before_addend = true,
    .per_token = true,
    .infer = infer_forward,
    .gradient = gradient_forward,
    .cost = cost_forward,
    .workspace = workspace_rows,
    .run = run_forward,
    .product = product_forward,
    .sums_across_rows = [](const Attributes& a, std::size_t i) { return i == 1 && a.flag("transposed"); },
};

const OpDef kMatmulDx = {
    .id = "matmul.dx",
    .op = "matmul",
    .doc = "dx = dy·W; operands rounded to compute, f32 sum, unrounded contribution",
    .kind = OpKind::product,
    .reads = {Read::matmul, Read::matmul},
    .operands = {"gradient", "weight"},
    .strided = {.inputs = 0b1, .outputs = 0b1},
    .quantized = 1,
    .takes_addend = true,
    .rounds_before_addend = true,
    .per_token = true,
    .infer = infer_dx,
    .cost = cost_forward,
    .workspace = workspace_rows,
    .run = run_dx,
    .sums_across_rows = [](const Attributes& a, std::size_t i) { return i == 1 && !a.flag("transposed"); },
};

const OpDef kMatmulDw = {
    .id = "matmul.dw",
    .op = "matmul",
    .doc = "dW += dyᵀ·x; operands rounded to compute, f32 sum over leaves, unrounded into grads",
    .kind = OpKind::product,
    .reads = {Read::matmul, Read::matmul},
    .operands = {"gradient", "input"},
    .strided = {.inputs = 0b11},
    .sums_tokens = true,
    .rounds_gradient = true,
    .infer = infer_dw,
    .cost = cost_dw,
    .workspace = workspace_dw,
    .run = run_dw,
    .sums_parts = [](std::span<const Shape>) { return true; },
    .sums_across_rows = [](const Attributes&, std::size_t) { return true; },
};

}  // namespace mantissa::graph
