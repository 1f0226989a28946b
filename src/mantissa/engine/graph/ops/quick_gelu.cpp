// x·sigmoid(1.702·x), an approximation of GELU (Hendrycks and Gimpel, 2016) and the activation of CLIP.
#include "mantissa/engine/graph/ops/pointwise.h"

namespace mantissa::graph {
namespace {

/// z = 1.702·x
Register scaled(ExpressionBuilder& b, Register x) {
  return b.mul(x, b.constant(1.702));
}

constexpr Pointwise kQuickGeluDef{
    .id = "quick_gelu",
    .gradient_id = "quick_gelu.grad",
    .doc = "x·sigmoid(1.702·x) in f32, rounded once",
    .gradient_doc = "dx in f32, an unrounded contribution",
    .forward = [](ExpressionBuilder& b, const Registers& in,
                  const Attributes&) { return b.mul(in[0], b.sigmoid(scaled(b, in[0]))); },
    // With s = sigmoid(z): s·(1 + z·(1 − s)).
    .gradient = [](ExpressionBuilder& b, const Registers& in, const Attributes&) -> Registers {
      const Register z = scaled(b, in[0]), s = b.sigmoid(z), one = b.constant(1);
      return {b.mul(b.mul(b.fma(z, b.sub(one, s), one), s), in[1])};
    },
};

}  // namespace

const OpWithGradient kQuickGelu = pointwise_op<kQuickGeluDef>();

}  // namespace mantissa::graph
