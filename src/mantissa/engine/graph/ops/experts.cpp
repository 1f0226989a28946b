// Products with the weights of the experts that a router chose (ops/route.cpp), without a capacity. What
// belongs to a token stays in the order of tokens, as [tokens, chosen, ·]; each product finds the tokens of
// an expert.
#include <algorithm>
#include <numeric>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/chosen_shapes.h"
#include "mantissa/engine/graph/ops/factor.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/engine/graph/ops/sum_rows.h"
#include "mantissa/kernels/gather.h"
#include "mantissa/kernels/gemm.h"

namespace mantissa::graph {
namespace {

using kernels::Gemm;

const std::int32_t* ids(const Argument& a) {
  return static_cast<const std::int32_t*>(a.data);
}

// ---- products with the weights of experts

/// The pairs of a token and one of its experts, by expert and, of each expert, by token.
class Pairs {
 public:
  /// `choice` [tokens, chosen].
  Pairs(const Argument& choice, std::int64_t experts)
      : chosen_(choice.width), begin_(static_cast<std::size_t>(experts) + 1) {
    const std::size_t count = static_cast<std::size_t>(choice.rows * choice.width);
    const std::int32_t* const of = ids(choice);
    for (std::size_t p = 0; p < count; ++p) ++begin_[static_cast<std::size_t>(of[p]) + 1];
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
    pairs_.resize(count);
    std::vector<std::int64_t> next = begin_;
    for (std::size_t p = 0; p < count; ++p)
      pairs_[static_cast<std::size_t>(next[static_cast<std::size_t>(of[p])]++)] =
          static_cast<std::int32_t>(p);
  }

  std::int64_t count() const { return std::ssize(pairs_); }
  std::int64_t begin(std::int64_t expert) const { return begin_[static_cast<std::size_t>(expert)]; }
  std::int64_t count(std::int64_t expert) const { return begin(expert + 1) - begin(expert); }
  std::int64_t token(std::int64_t pair) const { return pairs_[static_cast<std::size_t>(pair)] / chosen_; }

  /// For each pair, its row of [tokens, chosen, ·], or of [tokens, ·] if `by_token`.
  std::vector<std::int32_t> rows(bool by_token) const {
    std::vector<std::int32_t> rows = pairs_;
    if (by_token) {
      for (std::int32_t& row : rows) row /= static_cast<std::int32_t>(chosen_);
    }
    return rows;
  }
  /// For each row of [tokens, chosen, ·], its pair.
  std::vector<std::int32_t> places() const {
    std::vector<std::int32_t> places(pairs_.size());
    for (std::size_t p = 0; p < pairs_.size(); ++p)
      places[static_cast<std::size_t>(pairs_[p])] = static_cast<std::int32_t>(p);
    return places;
  }

 private:
  std::int64_t chosen_;
  std::vector<std::int64_t> begin_;  // of each expert in `pairs_`, and the end
  std::vector<std::int32_t> pairs_;  // token · chosen + number
};

/// Rows of `width` elements in the workspace of a call, which has room for them before that of the products.
class Scratch {
 public:
  explicit Scratch(const kernels::Context& ctx) : inner(ctx) {}

  Argument take(const Argument& like, std::int64_t rows, std::int64_t width, Scalar type) {
    Argument a = like;
    a.data = inner.workspace;
    a.type = type;
    a.rows = rows;
    a.width = width;
    a.stride = 0;
    const std::size_t bytes = aligned(static_cast<std::size_t>(rows * width) * bytes_of(type));
    inner.workspace += bytes;
    inner.workspace_bytes -= bytes;
    return a;
  }
  /// Takes a copy of the rows of the pairs.
  Argument copy(const Argument& from, const std::vector<std::int32_t>& rows) {
    Argument a = take(from, std::ssize(rows), from.width, from.type);
    kernels::gather(inner, a.rows, a.width, from.in(), rows.data(), a.out());
    return a;
  }

  kernels::Context inner;  // with what is left
};

std::size_t scratch_bytes(std::int64_t pairs, std::int64_t width, Scalar arithmetic) {
  return aligned(static_cast<std::size_t>(pairs * width) * bytes_of(arithmetic));
}

/// Rows [begin, begin + rows) of an operand.
Argument part(const Argument& whole, std::int64_t begin, std::int64_t rows) {
  Argument a = whole;
  a.data = static_cast<std::byte*>(whole.data) +
           static_cast<std::size_t>(begin * whole.row_stride()) * bytes_of(whole.type);
  a.rows = rows;
  return a;
}

/// The products of the copied rows `x` with the weights of their experts, or with their transposes, into `y`.
void multiply(const Call& c, const kernels::Context& ctx, const Pairs& pairs, const Argument& x,
              bool transpose, std::int64_t outputs, const Argument& y) {
  const Argument& weight = c.inputs[1];
  const std::int64_t rows = transpose ? outputs : x.width;  // of an expert's weight
  std::vector<Gemm> products;
  for (std::int64_t e = 0; e < weight.rows / rows; ++e) {
    if (pairs.count(e) == 0) continue;
    Gemm g;
    g.m = pairs.count(e);
    g.n = y.width;
    g.k = x.width;
    g.a = factor(part(x, pairs.begin(e), g.m), false);
    g.b = factor(part(weight, e * rows, rows), transpose);
    g.accumulator = c.accumulator;
    g.c = part(y, pairs.begin(e), g.m).out();
    products.push_back(g);
  }
  kernels::gemm_together(ctx, products);
}

// Inputs x [tokens, in] or [tokens, chosen, in], weight [experts, out, in], choice [tokens, chosen]; output
// [tokens, chosen, out]. "unrounded": the result is a term of a sum that is rounded once.
void check_experts(const NodeView& n, const Shape& x, std::size_t in_axis) {
  const Shape& w = n.shape(1);
  if (w.rank() == 3 && w.dim(in_axis).size == x.last()) return;
  throw ShapeError("experts: weight \"{}\" is {}, but its input is {}; the weight must be [experts, out, in]",
                   n.graph.value(n.inputs[1]).name, w.str(), x.str());
}

std::vector<OutputSpec> infer_experts(const NodeView& n) {
  check_experts(n, n.shape(0), 2);
  const Role role = n.attributes.flag("unrounded") ? Role::arithmetic : Role::compute;
  return {{with_more(n.shape(2), n.shape(1).dim(1).size), role}};
}

Cost cost_experts(const NodeView& n, const Sizes&) {
  const Shape& w = n.shape(1);
  return {2.0 * static_cast<double>(n.shape(2).count()) * static_cast<double>(w.dim(1).size) *
          static_cast<double>(w.last())};
}

std::size_t workspace_experts(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  const std::int64_t pairs = n.shape(2).count(), out = n.shape(1).dim(1).size, in = n.shape(1).last();
  return scratch_bytes(pairs, in, s.arithmetic) + scratch_bytes(pairs, out, s.arithmetic) +
         std::max(kernels::gemm_workspace(ctx, pairs, out, in, s.arithmetic, s.parts),
                  kernels::gemm_workspace(ctx, pairs, in, out, s.arithmetic, s.parts));
}

bool is_shared(const Argument& x, const Argument& choice) {
  return x.rows == choice.rows;
}

void run_experts(const Call& c) {
  const Argument &x = c.inputs[0], &out = c.outputs[0];
  const Pairs pairs(c.inputs[2], c.inputs[1].rows / out.width);
  Scratch scratch(c.ctx);
  const Argument copied = scratch.copy(x, pairs.rows(is_shared(x, c.inputs[2])));
  const Argument results = scratch.take(out, pairs.count(), out.width, out.type);
  multiply(c, scratch.inner, pairs, copied, true, out.width, results);
  kernels::gather(scratch.inner, pairs.count(), out.width, results.in(), pairs.places().data(), out.out());
}

void gradient_experts(GradientBuilder& b) {
  const ValueId dy = b.gradient(0);
  const bool shared = b.graph().value(b.input(0)).shape.rank() == 2;
  if (b.needed(0)) {
    const ValueId choice = b.input(2);
    b.contribute(0, b.emit("experts.dx", {dy, b.input(1), choice}, {{"shared", shared}}).front());
  }
  if (b.needed(1)) {
    const std::int64_t experts = b.graph().value(b.input(1)).shape.dim(0).size;
    b.contribute(1, b.emit("experts.dw", {dy, b.input(0), b.input(2)}, {{"experts", experts}}).front());
  }
}

// Inputs dy [tokens, chosen, out], weight, choice; output [tokens, chosen, in], or with "shared" their sums
// over the chosen experts [tokens, in].
std::vector<OutputSpec> infer_dx(const NodeView& n) {
  const std::int64_t in = n.shape(1).last();
  const Shape& choice = n.shape(2);
  return {{n.attributes.flag("shared") ? with_last(choice, in) : with_more(choice, in), Role::arithmetic}};
}

void run_dx(const Call& c) {
  const Argument &dy = c.inputs[0], &out = c.outputs[0];
  const Pairs pairs(c.inputs[2], c.inputs[1].rows / dy.width);
  Scratch scratch(c.ctx);
  const Argument copied = scratch.copy(dy, pairs.rows(false));
  const Argument results = scratch.take(out, pairs.count(), out.width, c.arithmetic);
  multiply(c, scratch.inner, pairs, copied, false, out.width, results);
  if (c.attributes.flag("shared")) {
    kernels::scatter_rows(scratch.inner, pairs.count(), out.width, pairs.rows(true).data(), results.in(),
                          out.rows, out.out());
  } else {
    kernels::gather(scratch.inner, pairs.count(), out.width, results.in(), pairs.places().data(), out.out());
  }
}

// Inputs dy [tokens, chosen, out], x [tokens, in] or [tokens, chosen, in], choice; output dW [experts, out,
// in]: for each expert a sum over the tokens that chose it, in the rows and leaves of all tokens.
std::vector<OutputSpec> infer_dw(const NodeView& n) {
  return {{Shape{n.attributes.integer("experts"), n.shape(0).last(), n.shape(1).last()},
           Role::weight_gradient, kNone, ValueKind::weight_gradient}};
}

Cost cost_dw(const NodeView& n, const Sizes&) {
  return {2.0 * static_cast<double>(n.shape(2).count()) * static_cast<double>(n.shape(0).last()) *
          static_cast<double>(n.shape(1).last())};
}

std::size_t workspace_dw(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  const std::int64_t pairs = n.shape(2).count(), out = n.shape(0).last(), in = n.shape(1).last();
  return scratch_bytes(pairs, in, s.arithmetic) + scratch_bytes(pairs, out, s.arithmetic) +
         kernels::gemm_workspace(ctx, out, in, pairs, s.arithmetic, s.parts);
}

/// The rows of the extent, each with its tokens of one expert: none of them is left out, since their number
/// decides which rows are a leaf.
std::vector<Row> rows_of(const Pairs& pairs, std::int64_t expert, std::span<const Row> rows) {
  std::vector<Row> of;
  std::int64_t at = 0;
  for (const Row& row : rows) {
    const std::int64_t begin = at;
    while (at < pairs.count(expert) && pairs.token(pairs.begin(expert) + at) < row.begin + row.length) ++at;
    of.push_back({begin, at - begin});
  }
  return of;
}

void run_dw(const Call& c) {
  const Argument &dy = c.inputs[0], &x = c.inputs[1], &choice = c.inputs[2];
  const std::int64_t experts = c.attributes.integer("experts");
  const Pairs pairs(choice, experts);
  Scratch scratch(c.ctx);
  const Argument of_dy = scratch.copy(dy, pairs.rows(false));
  const Argument of_x = scratch.copy(x, pairs.rows(is_shared(x, choice)));
  const SumRows rows(choice, c.extent);
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::vector<Row> of_e = rows_of(pairs, e, rows.rows());
    Gemm g;
    g.m = dy.width;
    g.n = x.width;
    g.k = pairs.count(e);
    g.a = factor(part(of_dy, pairs.begin(e), g.k), true);
    g.b = factor(part(of_x, pairs.begin(e), g.k), false);
    g.accumulator = c.accumulator;
    g.losses = c.losses;
    g.rows = of_e;
    g.rows_per_leaf = c.extent.rows_per_leaf;
    g.c = part(c.outputs[0], e * dy.width, dy.width).out();
    if (g.c.type == c.arithmetic) {
      g.accumulate = c.accumulate;
    } else if (c.accumulate) {
      g.addend = g.c;  // the micro-batch's sum is rounded together with it, once
    }
    kernels::gemm(scratch.inner, g);
  }
}

}  // namespace

const OpDef kExperts = {
    .id = "experts",
    .op = "experts",
    .doc =
        "y = x·Wᵀ with the weight of each chosen expert; operands rounded to compute, f32 sum, rounded once",
    .kind = OpKind::product,
    .reads = {Read::matmul, Read::matmul, Read::value},
    .operands = {"input", "weight"},
    .copies_rows = true,
    .per_token = true,
    .infer = infer_experts,
    .gradient = gradient_experts,
    .cost = cost_experts,
    .workspace = workspace_experts,
    .run = run_experts,
};

const OpDef kExpertsDx = {
    .id = "experts.dx",
    .op = "experts",
    .doc = "dx = dy·W of each chosen expert, added in the order of experts; unrounded contribution",
    .kind = OpKind::product,
    .reads = {Read::matmul, Read::matmul, Read::value},
    .operands = {"gradient", "weight"},
    .copies_rows = true,
    .per_token = true,
    .infer = infer_dx,
    .cost = cost_experts,
    .workspace = workspace_experts,
    .run = run_dx,
    .sums_across_rows = [](const Attributes&, std::size_t i) { return i == 1; },
};

const OpDef kExpertsDw = {
    .id = "experts.dw",
    .op = "experts",
    .doc = "dW += dyᵀ·x over the tokens of each expert; f32 sum over leaves, unrounded into grads",
    .kind = OpKind::product,
    .reads = {Read::matmul, Read::matmul, Read::value},
    .operands = {"gradient", "input"},
    .copies_rows = true,
    .sums_tokens = true,
    .rounds_gradient = true,
    .infer = infer_dw,
    .cost = cost_dw,
    .workspace = workspace_dw,
    .run = run_dw,
    .sums_across_rows = [](const Attributes&, std::size_t) { return true; },
};

}  // namespace mantissa::graph
