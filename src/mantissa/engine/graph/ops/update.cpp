// Building blocks of optimizers besides products: passes over a parameter's elements, and means of such
// passes. Both have a program (Node::expression).
#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

#include "mantissa/engine/graph/ops/elements.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/kernels/reduce.h"
#include "mantissa/kernels/reference/pointwise.h"
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
    all.push_back({in.data, in.type, broadcast(in.rows, in.width, rows, width)});
  return all;
}

std::vector<kernels::PointwiseInput> operands(const ReferenceCall& c, std::int64_t rows, std::int64_t width) {
  std::vector<kernels::PointwiseInput> all;
  for (const ReferenceOperand& in : c.inputs)
    all.push_back({in.data(), Scalar::f64, broadcast(in.rows, in.width, rows, width)});
  return all;
}

/// Returns the program's outputs at element (row, column), in double.
std::vector<double> evaluate(const kernels::Expression& program,
                             const std::vector<kernels::PointwiseInput>& inputs, std::int64_t row,
                             std::int64_t column, std::int64_t width) {
  std::vector<double> element;
  for (const kernels::PointwiseInput& in : inputs) {
    const std::int64_t at = in.broadcast == Broadcast::none           ? row * width + column
                            : in.broadcast == Broadcast::over_rows    ? column
                            : in.broadcast == Broadcast::over_columns ? row
                                                                      : 0;
    element.push_back(static_cast<const double*>(in.data)[at]);
  }
  return kernels::reference::evaluate(program, element);
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
    outputs.push_back({out.data, out.type, rounding, out.random, {}});
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

void reference_update(const ReferenceCall& c) {
  const std::int64_t rows = c.outputs[0].rows, width = c.outputs[0].width;
  const std::vector<kernels::PointwiseInput> inputs = operands(c, rows, width);
  for (std::int64_t e = 0; e < rows * width; ++e) {
    const std::vector<double> results = evaluate(*c.expression, inputs, e / width, e % width, width);
    for (std::size_t o = 0; o < results.size(); ++o)
      c.outputs[o].values[static_cast<std::size_t>(e)] = results[o];
  }
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

void reference_reduce(const ReferenceCall& c) {
  const std::int64_t rows = c.inputs[0].rows, width = c.inputs[0].width;
  const std::vector<kernels::PointwiseInput> inputs = operands(c, rows, width);
  std::vector<double>& sums = c.outputs[0].values;
  std::ranges::fill(sums, 0.0);
  for (std::int64_t e = 0; e < rows * width; ++e) {
    const double x = evaluate(*c.expression, inputs, e / width, e % width, width)[0];
    const std::int64_t result = sums.size() == 1                       ? 0
                                : over(c.attributes) == Over::each_row ? e / width
                                                                       : e % width;
    sums[static_cast<std::size_t>(result)] += c.attributes.flag("squares") ? x * x : x;
  }
  const double terms = static_cast<double>(rows * width) / static_cast<double>(sums.size());
  for (double& sum : sums) {
    if (c.attributes.flag("mean")) sum /= terms;
    if (c.attributes.flag("root")) sum = std::sqrt(sum);
  }
}

}  // namespace

const OpDef kUpdate = {
    .id = "update",
    .op = "update",
    .doc =
        "one pass of an optimizer over a parameter: every operation in f32, each result rounded once to its "
        "stored format",
    .reads = {Read::value},
    .cost = cost_of_elements,
    .run = run_update,
    .reference = reference_update,
};

const OpDef kReduce = {
    .id = "update.reduce",
    .op = "update",
    .doc =
        "a mean or norm of a parameter, its rows or its columns: terms in f32, sums in f64, rounded once to "
        "f32",
    .kind = OpKind::rows,
    .reads = {Read::value},
    .interior = "update",
    .infer = infer_reduce,
    .cost = cost_of_elements,
    .workspace = workspace_reduce,
    .run = run_reduce,
    .reference = reference_reduce,
};

}  // namespace mantissa::graph
