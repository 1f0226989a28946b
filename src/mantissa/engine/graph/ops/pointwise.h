// The definition of pointwise ops: an op and its gradient, from one expression each.
//
//   constexpr Pointwise kReluSquaredDef{
//       .id = "relu_squared", .gradient_id = "relu_squared.grad", .doc = …, .gradient_doc = …,
//       .forward = [](ExpressionBuilder& b, const Registers& in, const Attributes&) {…},
//       .gradient = …};
//   const OpWithGradient kReluSquared = pointwise_op<kReluSquaredDef>();
#pragma once

#include <string_view>
#include <vector>

#include "mantissa/engine/graph/op.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/kernels/expression.h"

namespace mantissa::graph {

using kernels::ExpressionBuilder;
using Register = ExpressionBuilder::Reg;
using Registers = std::vector<Register>;

/// A pointwise op whose inputs have equal shapes, and its gradient.
struct Pointwise {
  std::string_view id;
  std::string_view gradient_id;
  std::string_view doc;
  std::string_view gradient_doc;
  Role role = Role::compute;  // of the result
  // names of several inputs, which distinguish their gradients
  std::string_view first = {}, second = {}, third = {};
  /// Returns the result from the inputs.
  Register (*forward)(ExpressionBuilder& b, const Registers& in, const Attributes& a) = nullptr;
  /// Returns the gradients of the inputs from the inputs followed by the gradient of the result.
  Registers (*gradient)(ExpressionBuilder& b, const Registers& in, const Attributes& a) = nullptr;
};

// Parts of definitions.

/// Returns the common properties of ops that are expressions: they read values, may work in place, and share
/// a kernel.
OpDef expression_op(std::string_view id, std::string_view op, std::string_view doc);
/// Runs a node's expression. An input of one row [width] is broadcast to all rows of the outputs.
void run_expression(const Call& c);
/// Throws ShapeError with `op` if the inputs of `n` differ in shape.
void check_same_shape(const NodeView& n, std::string_view op);
/// Loads every input, in order.
Registers load_inputs(ExpressionBuilder& b, const NodeView& n);
/// Returns the program that stores `results` in order.
kernels::Expression stored(ExpressionBuilder& b, const Registers& results);
/// Returns the outputs of a gradient op: one per input except the last, which is the gradient of the result.
std::vector<OutputSpec> infer_gradient(const NodeView& n, const Pointwise& def);
/// Emits the gradient op and contributes its outputs.
void contribute_gradient(GradientBuilder& b, const Pointwise& def);

template <const Pointwise& kDef>
OpDef pointwise_forward() {
  OpDef op = expression_op(kDef.id, kDef.id, kDef.doc);
  op.infer = [](const NodeView& n) {
    check_same_shape(n, kDef.id);
    return std::vector<OutputSpec>{{n.shape(0), kDef.role}};
  };
  op.gradient = [](GradientBuilder& b) { contribute_gradient(b, kDef); };
  op.expression = [](const NodeView& n) {
    ExpressionBuilder b;
    return stored(b, {kDef.forward(b, load_inputs(b, n), n.attributes)});
  };
  return op;
}

template <const Pointwise& kDef>
OpDef pointwise_gradient() {
  OpDef op = expression_op(kDef.gradient_id, kDef.id, kDef.gradient_doc);
  op.infer = [](const NodeView& n) { return infer_gradient(n, kDef); };
  op.expression = [](const NodeView& n) {
    ExpressionBuilder b;
    return stored(b, kDef.gradient(b, load_inputs(b, n), n.attributes));
  };
  return op;
}

template <const Pointwise& kDef>
OpWithGradient pointwise_op() {
  return {pointwise_forward<kDef>(), pointwise_gradient<kDef>()};
}

}  // namespace mantissa::graph
