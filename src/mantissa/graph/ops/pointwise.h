// How pointwise ops are defined: an op and the op of its gradient, from one expression each.
//
//   constexpr Pointwise kReluSquaredDef{
//       .id = "relu_squared", .gradient_id = "relu_squared.grad", .doc = …, .gradient_doc = …,
//       .forward = [](ExpressionBuilder& b, const Registers& in, const Attributes&) {…},
//       .gradient = …};
//   const OpWithGradient kReluSquared = pointwise_op<kReluSquaredDef>();
#pragma once

#include <string_view>
#include <vector>

#include "mantissa/graph/op.h"
#include "mantissa/graph/ops/ops.h"
#include "mantissa/kernels/expression.h"

namespace mantissa::graph {

using kernels::ExpressionBuilder;
using Register = ExpressionBuilder::Reg;
using Registers = std::vector<Register>;

/// A pointwise op whose inputs have one shape, and its gradient.
struct Pointwise {
  std::string_view id;
  std::string_view gradient_id;
  std::string_view doc;
  std::string_view gradient_doc;
  Role role = Role::compute;                 // of the result
  std::string_view first = {}, second = {};  // names of two inputs, by which their gradients are told apart
  /// The result, from the inputs.
  Register (*forward)(ExpressionBuilder& b, const Registers& in, const Attributes& a) = nullptr;
  /// The gradients of the inputs, from the inputs and after them the gradient of the result.
  Registers (*gradient)(ExpressionBuilder& b, const Registers& in, const Attributes& a) = nullptr;
};

// Parts of definitions.

/// What all ops that are expressions share: they read values, may work in place, and run one kernel.
OpDef expression_op(std::string_view id, std::string_view op, std::string_view doc);
/// Runs a node's expression. An input of one row [width] is the same for every row of the outputs.
void run_expression(const Call& c);
void reference_expression(const ReferenceCall& c);
/// Throws ShapeError, naming `op`, where the inputs of `n` have not one shape.
void check_same_shape(const NodeView& n, std::string_view op);
/// The value of every input, in order.
Registers load_inputs(ExpressionBuilder& b, const NodeView& n);
/// The program that stores `results` in order.
kernels::Expression stored(ExpressionBuilder& b, const Registers& results);
/// The outputs of a gradient op: one per input but the last, which is the gradient of the result.
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
