// Sums, products and multiples of values. The second operand of a sum or product may be [width], applied to
// every token.
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/pointwise.h"

namespace mantissa::graph {
namespace {

bool is_broadcast(const Shape& operand, const Shape& whole) {
  return operand != whole && operand == Shape{whole.last()};
}

/// Returns the shape of a result. The second operand has the first one's shape or is broadcast.
Shape broadcast_shape(const NodeView& n, std::string_view op) {
  if (n.shape(1) != n.shape(0) && !is_broadcast(n.shape(1), n.shape(0))) {
    throw ShapeError("{}: \"{}\" is {}, but \"{}\" is {}; it must have that shape, or be [{}]", op,
                     n.graph.value(n.inputs[1]).name, n.shape(1).str(), n.graph.value(n.inputs[0]).name,
                     n.shape(0).str(), n.shape(0).last());
  }
  return n.shape(0);
}

/// Adds `d`, of the result's shape, to the gradient of the second operand, summed over tokens if that is
/// broadcast.
void contribute_to_second(GradientBuilder& b, ValueId d) {
  const Value& operand = b.graph().value(b.input(1));
  if (!is_broadcast(operand.shape, b.graph().value(b.input(0)).shape)) return b.contribute(1, d);
  if (operand.kind != ValueKind::parameter) {
    throw InternalError("{} {}: \"{}\" is broadcast and has a gradient, so it must be a parameter",
                        b.node().scope, b.node().op->id, operand.name);
  }
  b.contribute(1, b.emit("token_sum", {d}).front());
}

kernels::Expression sum_expression(const NodeView& n) {
  ExpressionBuilder b;
  const Registers in = load_inputs(b, n);
  return stored(b, {b.add(in[0], in[1])});
}

kernels::Expression product_expression(const NodeView& n) {
  ExpressionBuilder b;
  const Registers in = load_inputs(b, n);
  return stored(b, {b.mul(in[0], in[1])});
}

/// Returns the role of a result: of the residual stream, or with attribute "compute" of a layer's result.
Role result_role(const NodeView& n) {
  return n.attributes.flag("compute") ? Role::compute : Role::residual;
}

OpDef add_op() {
  OpDef op = expression_op(
      "add", "add",
      "residual + branch in f32, rounded to residual; two terms of a layer's result, to compute");
  op.duty = Duty::sum;
  op.infer = [](const NodeView& n) {
    return std::vector<OutputSpec>{{broadcast_shape(n, "add"), result_role(n)}};
  };
  op.gradient = [](GradientBuilder& b) {
    b.contribute(0, b.gradient(0));
    if (b.needed(1)) contribute_to_second(b, b.gradient(0));
  };
  op.expression = sum_expression;
  return op;
}

OpDef mul_op() {
  OpDef op = expression_op("mul", "mul", "x·y in f32, rounded once");
  op.infer = [](const NodeView& n) {
    return std::vector<OutputSpec>{{broadcast_shape(n, "mul"), Role::compute}};
  };
  op.gradient = [](GradientBuilder& b) {
    const ValueId dy = b.gradient(0);
    if (b.needed(0)) b.contribute(0, b.emit("mul.dx", {dy, b.input(1)}).front());
    if (b.needed(1)) contribute_to_second(b, b.emit("mul.dx", {dy, b.input(0)}).front());
  };
  op.expression = product_expression;
  return op;
}

OpDef mul_dx_op() {
  OpDef op = expression_op("mul.dx", "mul", "dy times the other factor in f32, an unrounded contribution");
  op.infer = [](const NodeView& n) {
    return std::vector<OutputSpec>{{broadcast_shape(n, "mul.dx"), Role::arithmetic}};
  };
  op.expression = product_expression;
  return op;
}

constexpr Pointwise kScaleDef{
    .id = "scale",
    .gradient_id = "scale.grad",
    .doc = "x·factor in f32, rounded to residual; in a layer, to compute",
    .gradient_doc = "dy·factor in f32, an unrounded contribution",
    .role = Role::residual,
    .forward = [](ExpressionBuilder& b, const Registers& in,
                  const Attributes& a) { return b.mul(in[0], b.constant(a.number("factor"))); },
    .gradient = [](ExpressionBuilder& b, const Registers& in, const Attributes& a) -> Registers {
      return {b.mul(in[1], b.constant(a.number("factor")))};
    },
};

OpWithGradient scale_op() {
  OpWithGradient op = pointwise_op<kScaleDef>();
  op.forward.infer = [](const NodeView& n) { return std::vector<OutputSpec>{{n.shape(0), result_role(n)}}; };
  return op;
}

}  // namespace

const OpDef kAdd = add_op();
const OpDef kMul = mul_op();
const OpDef kMulDx = mul_dx_op();
const OpWithGradient kScale = scale_op();

}  // namespace mantissa::graph
