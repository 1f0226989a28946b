// C = A·B of two matrices without a token axis, each plain or transposed: products of weights in some
// optimizers.
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/factor.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/kernels/gemm.h"

namespace mantissa::graph {
namespace {

/// Rows, columns and terms of the product. Attributes: "transpose_a", "transpose_b".
struct Size {
  std::int64_t m = 0, n = 0, k = 0, k_of_b = 0;
};

Size size_of(const Attributes& attributes, std::int64_t a_rows, std::int64_t a_width, std::int64_t b_rows,
             std::int64_t b_width) {
  const bool a = attributes.flag("transpose_a"), b = attributes.flag("transpose_b");
  return {a ? a_width : a_rows, b ? b_rows : b_width, a ? a_rows : a_width, b ? b_width : b_rows};
}

Size size_of(const NodeView& n) {
  const Shape &a = n.shape(0), &b = n.shape(1);
  return size_of(n.attributes, a.leading(), a.last(), b.leading(), b.last());
}

std::vector<OutputSpec> infer(const NodeView& n) {
  const Size s = size_of(n);
  if (s.k != s.k_of_b) {
    throw ShapeError("product: \"{}\" is {}, but \"{}\" is {}; the sums are of {} and {} terms",
                     n.graph.value(n.inputs[0]).name, n.shape(0).str(), n.graph.value(n.inputs[1]).name,
                     n.shape(1).str(), s.k, s.k_of_b);
  }
  return {{Shape{s.m, s.n}, Role::arithmetic}};
}

Cost cost(const NodeView& n, const Sizes&) {
  const Size s = size_of(n);
  return {2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k)};
}

std::size_t workspace(const NodeView& n, const Sizes& sizes, const kernels::Context& ctx) {
  const Size s = size_of(n);
  return kernels::gemm_workspace(ctx, s.m, s.n, s.k, sizes.arithmetic, sizes.parts);
}

void run(const Call& c) {
  const Argument &a = c.inputs[0], &b = c.inputs[1];
  const Size s = size_of(c.attributes, a.rows, a.width, b.rows, b.width);
  kernels::Gemm g;
  g.m = s.m;
  g.n = s.n;
  g.k = s.k;
  g.a = factor(a, c.attributes.flag("transpose_a"));
  g.b = factor(b, c.attributes.flag("transpose_b"));
  g.c = c.outputs[0].out();
  g.rounded = c.outputs[0].rounded;
  g.accumulator = c.accumulator;
  kernels::gemm(c.ctx, g);
}

}  // namespace

const OpDef kProduct = {
    .id = "matmul.product",
    .op = "matmul",
    .doc = "C = A·B; operands rounded to compute, f32 sum, unrounded",
    .kind = OpKind::product,
    .reads = {Read::matmul, Read::matmul},
    .operands = {"input", "weight"},
    .infer = infer,
    .cost = cost,
    .workspace = workspace,
    .run = run,
};

}  // namespace mantissa::graph
