// Soft-capped values, with the same operations as the head's cap (kernels/head.h), so that returned logits
// have the same bits as those from which the head computes log-probabilities.
#include "mantissa/engine/graph/ops/pointwise.h"

namespace mantissa::graph {
namespace {

/// tanh(x / cap)
Register bounded(ExpressionBuilder& b, Register x, const Attributes& a) {
  return b.tanh(b.div(x, b.constant(a.number("cap"))));
}

constexpr Pointwise kSoftCapDef{
    .id = "soft_cap",
    .gradient_id = "soft_cap.grad",
    .doc = "cap·tanh(x / cap) in f32, rounded once; as logits unrounded",
    .gradient_doc = "dy·(1 − tanh²(x / cap)) in f32, an unrounded contribution",
    .forward = [](ExpressionBuilder& b, const Registers& in,
                  const Attributes& a) { return b.mul(b.constant(a.number("cap")), bounded(b, in[0], a)); },
    .gradient = [](ExpressionBuilder& b, const Registers& in, const Attributes& a) -> Registers {
      const Register t = bounded(b, in[0], a);
      return {b.mul(in[1], b.fma(b.neg(t), t, b.constant(1)))};
    },
};

OpWithGradient soft_cap_op() {
  OpWithGradient op = pointwise_op<kSoftCapDef>();
  op.forward.infer = [](const NodeView& n) {
    const bool logits = n.graph.value(n.inputs[0]).role == Role::output;
    return std::vector<OutputSpec>{{n.shape(0), logits ? Role::output : Role::compute}};
  };
  return op;
}

}  // namespace

const OpWithGradient kSoftCap = soft_cap_op();

}  // namespace mantissa::graph
