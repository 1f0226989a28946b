// Sums inserted by differentiation, changes of format, and pointwise chains joined by the plan.
#include "mantissa/engine/graph/ops/pointwise.h"

namespace mantissa::graph {
namespace {

/// ((in0 + in1) + in2) …; a copy for one input.
kernels::Expression sum_expression(const NodeView& n) {
  ExpressionBuilder b;
  const Registers in = load_inputs(b, n);
  Register sum = in[0];
  for (std::size_t i = 1; i < in.size(); ++i) sum = b.add(sum, in[i]);
  return stored(b, {sum});
}

ValueId of(const NodeView& n) {
  return static_cast<ValueId>(n.attributes.integer("of"));
}

OpDef sum_op() {
  OpDef op = expression_op("sum", "sum",
                           "contributions to a gradient summed in f32, rounded once to the value's format");
  op.duty = Duty::sum;
  op.infer = [](const NodeView& n) {
    check_same_shape(n, "sum");
    return std::vector<OutputSpec>{{n.shape(0), Role::like, of(n)}};
  };
  op.expression = sum_expression;
  return op;
}

OpDef sum_uses_op() {
  OpDef op =
      expression_op("sum_uses", "sum", "gradients of a tied weight's uses, added once per optimizer step");
  op.duty = Duty::sum;
  op.in_place = false;
  op.alias = 0;
  op.infer = [](const NodeView& n) {
    check_same_shape(n, "sum_uses");
    return std::vector<OutputSpec>{{n.shape(0), Role::weight_gradient, of(n), ValueKind::weight_gradient}};
  };
  op.expression = sum_expression;
  return op;
}

OpDef cast_op() {
  OpDef op =
      expression_op("cast", "cast", "a change of format that no kernel can include in loading or storing");
  op.kind = OpKind::move;
  op.duty = Duty::conversion;
  op.in_place = false;
  op.infer = [](const NodeView& n) { return std::vector<OutputSpec>{{n.shape(0), Role::arithmetic}}; };
  op.expression = sum_expression;
  return op;
}

OpDef round_kv_op() {
  OpDef op =
      expression_op("kv", "kv", "keys or values rounded to the cache's format; the gradient passes through");
  op.in_place = false;
  op.infer = [](const NodeView& n) { return std::vector<OutputSpec>{{n.shape(0), Role::kv}}; };
  op.gradient = [](GradientBuilder& b) { b.contribute(0, b.gradient(0)); };
  op.expression = sum_expression;
  return op;
}

OpDef fused_op() {
  OpDef op = expression_op("fused", "fused",
                           "a chain of pointwise ops as one program, with the roundings of its parts");
  op.in_place = false;
  op.cost = nullptr;
  return op;
}

}  // namespace

const OpDef kSum = sum_op();
const OpDef kSumUses = sum_uses_op();
const OpDef kCast = cast_op();
const OpDef kRoundKv = round_kv_op();
const OpDef kFused = fused_op();

}  // namespace mantissa::graph
