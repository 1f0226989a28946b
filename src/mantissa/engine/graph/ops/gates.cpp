// Gates of recurrent layers. Each computes in f32 and rounds its result once; gradients are unrounded
// contributions.
#include "mantissa/engine/graph/ops/pointwise.h"

namespace mantissa::graph {
namespace {

constexpr Pointwise kTanhDef{
    .id = "tanh",
    .gradient_id = "tanh.grad",
    .doc = "tanh(x) in f32, rounded once",
    .gradient_doc = "dy·(1 − tanh²(x)) in f32, an unrounded contribution",
    .forward = [](ExpressionBuilder& b, const Registers& in, const Attributes&) { return b.tanh(in[0]); },
    .gradient = [](ExpressionBuilder& b, const Registers& in, const Attributes&) -> Registers {
      const Register y = b.tanh(in[0]);
      return {b.mul(b.fma(b.neg(y), y, b.constant(1)), in[1])};
    },
};

/// s·(1 − s) for s = sigmoid(x), without cancellation: sigmoid(x)·sigmoid(−x).
Register sigmoid_slope(ExpressionBuilder& b, Register x) {
  return b.mul(b.sigmoid(x), b.sigmoid(b.neg(x)));
}

constexpr Pointwise kSigmoidDef{
    .id = "sigmoid",
    .gradient_id = "sigmoid.grad",
    .doc = "1/(1 + exp(−x)) in f32, rounded once",
    .gradient_doc = "dy·sigmoid(x)·sigmoid(−x) in f32, an unrounded contribution",
    .forward = [](ExpressionBuilder& b, const Registers& in, const Attributes&) { return b.sigmoid(in[0]); },
    .gradient = [](ExpressionBuilder& b, const Registers& in, const Attributes&) -> Registers {
      return {b.mul(sigmoid_slope(b, in[0]), in[1])};
    },
};

constexpr Pointwise kDecayDef{
    .id = "decay",
    .gradient_id = "decay.grad",
    .doc = "factor·sigmoid(x), the logarithm of a decay, unrounded",
    .gradient_doc = "dy·factor·sigmoid(x)·sigmoid(−x) in f32, an unrounded contribution",
    .role = Role::arithmetic,
    .forward = [](ExpressionBuilder& b, const Registers& in,
                  const Attributes& a) { return b.mul(b.sigmoid(in[0]), b.constant(a.number("factor"))); },
    .gradient = [](ExpressionBuilder& b, const Registers& in, const Attributes& a) -> Registers {
      return {b.mul(b.mul(sigmoid_slope(b, in[0]), b.constant(a.number("factor"))), in[1])};
    },
};

constexpr Pointwise kLerpDef{
    .id = "lerp",
    .gradient_id = "lerp.grad",
    .doc = "x + (y − x)·gate in f32, rounded once",
    .gradient_doc = "dx, dy, dgate in f32, unrounded contributions",
    .first = "x",
    .second = "y",
    .third = "gate",
    .forward = [](ExpressionBuilder& b, const Registers& in,
                  const Attributes&) { return b.fma(b.sub(in[1], in[0]), in[2], in[0]); },
    .gradient = [](ExpressionBuilder& b, const Registers& in, const Attributes&) -> Registers {
      const Register gate = in[2], d = in[3], of_y = b.mul(d, gate);
      return {b.sub(d, of_y), of_y, b.mul(d, b.sub(in[1], in[0]))};
    },
};

}  // namespace

const OpWithGradient kTanh = pointwise_op<kTanhDef>();
const OpWithGradient kSigmoid = pointwise_op<kSigmoidDef>();
const OpWithGradient kDecay = pointwise_op<kDecayDef>();
const OpWithGradient kLerp = pointwise_op<kLerpDef>();

}  // namespace mantissa::graph
