// Building blocks of optimizers besides products: passes over a parameter's elements, and means of such
// passes. Both have a program (Node::expression).
#include <algorithm>
#include <cassert>
#include <vector>

#include "mantissa/engine/graph/ops/elements.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/kernels/reduce.h"
#include "mantissa/kernels/sweep.h"

namespace mantissa::graph {
namespace {

using kernels::Broadcast;
using kernels::Over;

/// Returns how an operand of [rows, width] is broadcast over elements of another size: a row [width], a
/// column [rows, 1], or one number.
Broadcast broadcast(std::int64_t rows, std::int64_t width, std::int64_t over_rows, std::int64_t over_width) {
  if (rows == over_rows && width == over_width) return Broadcast::none;
  if (rows * width == 1) return Broadcast::everywhere;
  if (rows == over_rows && width == 1) return Broadcast::over_columns;
  assert(rows == 1 && width == over_width);
  return Broadcast::over_rows;
}

std::vector<kernels::PointwiseInput> operands(const Call& c, std::int64_t rows, std::int64_t width) {
  std::vector<kernels::PointwiseInput> all;
  for (const Argument& in : c.inputs)
    all.push_back({in.data, in.type, broadcast(in.rows, in.width, rows, width), 0, in.codes});
  return all;
}

// ---- update: outputs that overwrite an input are kept states; outputs beyond the program's are copies of
// the weight in lower formats

bool is_kept(const Call& c, const Argument& output) {
  return std::ranges::any_of(c.inputs, [&](const Argument& in) { return in.data == output.data; });
}

void run_update(const Call& c) {
  const std::int64_t rows = c.outputs[0].rows, width = c.outputs[0].width;
  const std::vector<kernels::PointwiseInput> inputs = operands(c, rows, width);
  std::vector<kernels::PointwiseOutput> copies;
  for (const Argument& copy : c.outputs.subspan(c.expression->outputs))
    copies.push_back({copy.data, copy.type});
  std::vector<kernels::SweepOutput> outputs;
  for (const Argument& out : c.outputs.first(c.expression->outputs)) {
    const Rounding rounding = is_kept(c, out) ? c.rounding : Rounding::nearest;
    outputs.push_back({out.data, out.type, rounding, out.random, {}, out.codes});
    if (out.weight) outputs.back().copies = copies;
  }
  const kernels::Sweep sweep{*c.expression,
                             rows,
                             width,
                             inputs,
                             outputs,
                             c.arithmetic,
                             {c.extent.seed, c.extent.step, c.random_name}};
  if (c.unmoved != nullptr) {
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      if (c.outputs[o].weight) *c.unmoved = kernels::count_unmoved(c.ctx, sweep, o, c.decay);
    }
    return;
  }
  if (c.overflow == nullptr) return kernels::sweep(c.ctx, sweep);
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (c.outputs[o].weight) *c.overflow = kernels::find_overflow(c.ctx, sweep, o);
  }
  if (*c.overflow) return;
  // Later steps read the results of this one, but no kept state.
  bool made = false;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (is_kept(c, c.outputs[o])) {
      outputs[o] = {};
    } else {
      made = true;
    }
  }
  if (made) kernels::sweep(c.ctx, sweep);
}

// ---- reduce: attributes "over" (kernels::Over), "squares", "mean", "root". The first input has an element
// for each of the parameter's.

Over over(const Attributes& attributes) {
  return static_cast<Over>(attributes.integer("over"));
}

std::vector<OutputSpec> infer_reduce(const NodeView& n) {
  const Shape& x = n.shape(0);
  switch (over(n.attributes)) {
    case Over::all:
      return {{Shape{}, Role::arithmetic}};
    case Over::each_row:
      return {{Shape{x.leading(), 1}, Role::arithmetic}};
    case Over::each_column:
      return {{Shape{x.last()}, Role::arithmetic}};
  }
  return {};
}

std::size_t workspace_reduce(const NodeView& n, const Sizes&, const kernels::Context&) {
  return kernels::reduce_workspace(n.shape(0).leading(), n.shape(0).last(), over(n.attributes));
}

void run_reduce(const Call& c) {
  const std::int64_t rows = c.inputs[0].rows, width = c.inputs[0].width;
  const std::vector<kernels::PointwiseInput> inputs = operands(c, rows, width);
  kernels::reduce(c.ctx, {*c.expression, rows, width, inputs, c.arithmetic, over(c.attributes),
                          c.attributes.flag("squares"), c.attributes.flag("mean"), c.attributes.flag("root"),
                          c.outputs[0].data, c.outputs[0].type});
}

}  // namespace

const OpDef kUpdate = {
    .id = "update",
    .op = "update",
    .doc =
        "one pass of an optimizer over a parameter: every operation in f32, each result rounded once to its "
        "stored format",
    .cost = cost_of_elements,
    .run = run_update,
};

const OpDef kReduce = {
    .id = "update.reduce",
    .op = "update",
    .doc =
        "a mean or norm of a parameter, its rows or its columns: terms in f32, sums in f64, rounded once to "
        "f32",
    .kind = OpKind::rows,
    .interior = "update",
    .infer = infer_reduce,
    .cost = cost_of_elements,
    .workspace = workspace_reduce,
    .run = run_reduce,
};

}  // namespace mantissa::graph
