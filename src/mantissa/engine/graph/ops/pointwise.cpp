#include "mantissa/engine/graph/ops/pointwise.h"

#include <array>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/elements.h"

namespace mantissa::graph {

OpDef expression_op(std::string_view id, std::string_view op, std::string_view doc) {
  OpDef def;
  def.id = id;
  def.op = op;
  def.doc = doc;
  def.strided = {.inputs = kAllOperands, .outputs = kAllOperands};
  def.per_token = true;
  def.in_place = true;
  def.cost = cost_of_elements;
  def.run = run_expression;
  return def;
}

void run_expression(const Call& c) {
  std::array<kernels::PointwiseInput, kernels::kMaxInputs> inputs;
  std::array<kernels::PointwiseOutput, kernels::kMaxOutputs> outputs;
  const std::int64_t rows = c.outputs[0].rows;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const bool whole = c.inputs[i].rows == rows;
    inputs[i] = {c.inputs[i].data, c.inputs[i].type,
                 whole ? kernels::Broadcast::none : kernels::Broadcast::over_rows, c.inputs[i].stride};
  }
  for (std::size_t i = 0; i < c.outputs.size(); ++i)
    outputs[i] = {c.outputs[i].data, c.outputs[i].type, c.outputs[i].stride};
  kernels::pointwise(c.ctx, *c.expression, rows, c.outputs[0].width, std::span(inputs).first(c.inputs.size()),
                     std::span(outputs).first(c.outputs.size()));
}

void check_same_shape(const NodeView& n, std::string_view op) {
  for (std::size_t i = 1; i < n.inputs.size(); ++i) {
    if (n.shape(i) != n.shape(0)) {
      throw ShapeError("{}: inputs {} and {} must have the same shape", op, n.shape(0).str(),
                       n.shape(i).str());
    }
  }
}

Registers load_inputs(ExpressionBuilder& b, const NodeView& n) {
  Registers in;
  for (std::size_t i = 0; i < n.inputs.size(); ++i) in.push_back(b.load(i));
  return in;
}

kernels::Expression stored(ExpressionBuilder& b, const Registers& results) {
  for (std::size_t i = 0; i < results.size(); ++i) b.store(results[i], i);
  return b.build();
}

std::vector<OutputSpec> infer_gradient(const NodeView& n, const Pointwise& def) {
  const std::string_view names[] = {def.first, def.second, def.third};
  std::vector<OutputSpec> specs;
  for (std::size_t i = 0; i + 1 < n.inputs.size(); ++i)
    specs.push_back({n.shape(i), Role::arithmetic, kNone, ValueKind::activation, names[i]});
  return specs;
}

void contribute_gradient(GradientBuilder& b, const Pointwise& def) {
  std::vector<ValueId> inputs = b.node().inputs;
  inputs.push_back(b.gradient(0));
  const std::vector<ValueId> d = b.emit(def.gradient_id, std::move(inputs), b.node().attributes);
  for (std::size_t i = 0; i < d.size(); ++i) b.contribute(i, d[i]);
}

}  // namespace mantissa::graph
