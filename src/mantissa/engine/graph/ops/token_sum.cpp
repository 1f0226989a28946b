// The gradient of a bias: the sum over tokens of the incoming gradient.
#include "mantissa/kernels/token_sum.h"

#include "mantissa/engine/graph/ops/elements.h"
#include "mantissa/engine/graph/ops/leaf_part.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/engine/graph/ops/sum_rows.h"

namespace mantissa::graph {
namespace {

// Input dy [tokens, n]; output the weight gradient, [n] or of the sizes in the attribute "dims".
std::vector<OutputSpec> infer(const NodeView& n) {
  std::vector<Dim> dims;
  for (const std::int64_t size : n.attributes.integers("dims", {n.shape(0).last()})) dims.push_back({size});
  return {{Shape(std::move(dims)), Role::weight_gradient, kNone, ValueKind::weight_gradient}};
}

void run(const Call& c) {
  kernels::TokenSum s;
  s.columns = c.inputs[0].width;
  s.x = c.inputs[0].in();
  const SumRows rows(c.inputs[0], c.extent);
  sum_leaves(c, [&](Extent extent, const Argument& sum, bool accumulate) {
    if (c.leaf == nullptr) extent.rows = rows.rows();
    s.sum = sum.out();
    s.accumulate = accumulate;
    kernels::token_sum(c.ctx, extent, s);
  });
}

}  // namespace

const OpDef kTokenSum = {
    .id = "token_sum",
    .op = "token_sum",
    .doc = "dbias += Σ dy over leaves in f32, unrounded into grads",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b1},
    .sums_tokens = true,
    .infer = infer,
    .cost = cost_of_elements,
    .run = run,
    .sums_parts = [](std::span<const Shape>) { return true; },
};

}  // namespace mantissa::graph
