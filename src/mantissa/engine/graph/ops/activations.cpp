// Activations and gated activations. Each computes in f32 and rounds its result once; gradients are unrounded
// contributions.
#include <numbers>

#include "mantissa/engine/graph/ops/pointwise.h"

namespace mantissa::graph {
namespace {

// ---- relu(x)²

constexpr Pointwise kReluSquaredDef{
    .id = "relu_squared",
    .gradient_id = "relu_squared.grad",
    .doc = "relu(x)² in f32, rounded once",
    .gradient_doc = "2·relu(x)·dy in f32, an unrounded contribution",
    .forward =
        [](ExpressionBuilder& b, const Registers& in, const Attributes&) {
          const Register r = b.relu(in[0]);
          return b.mul(r, r);
        },
    .gradient = [](ExpressionBuilder& b, const Registers& in, const Attributes&) -> Registers {
      return {b.mul(b.mul(b.relu(in[0]), b.constant(2)), in[1])};
    },
};

// ---- silu(gate)·up, with gate at most a limit and up within ± the limit, as in gpt-oss and DeepSeek-V4

double limit_of(const Attributes& a) {
  return a.number("limit", 0);
}

Register limited_gate(ExpressionBuilder& b, Register gate, const Attributes& a) {
  return limit_of(a) == 0 ? gate : b.min(gate, b.constant(limit_of(a)));
}

Register limited_up(ExpressionBuilder& b, Register up, const Attributes& a) {
  if (limit_of(a) == 0) return up;
  return b.max(b.min(up, b.constant(limit_of(a))), b.constant(-limit_of(a)));
}

/// `gradient` where `x` is at most the limit, else 0.
Register where_within(ExpressionBuilder& b, Register x, Register gradient, const Attributes& a) {
  if (limit_of(a) == 0) return gradient;
  const Register beyond = b.sign(b.relu(b.sub(x, b.constant(limit_of(a)))));
  return b.mul(gradient, b.sub(b.constant(1), beyond));
}

constexpr Pointwise kSwigluDef{
    .id = "swiglu",
    .gradient_id = "swiglu.grad",
    .doc = "silu(gate)·up in f32, rounded once; with a limit, of min(gate, limit) and up within ±limit",
    .gradient_doc = "dgate, dup in f32, unrounded contributions",
    .first = "gate",
    .second = "up",
    .forward =
        [](ExpressionBuilder& b, const Registers& in, const Attributes& a) {
          const Register gate = limited_gate(b, in[0], a);
          return b.mul(b.mul(gate, b.sigmoid(gate)), limited_up(b, in[1], a));
        },
    // With s = sigmoid(gate): dgate = dy·up·s·(1 + gate·(1 − s)), dup = dy·gate·s; 0 beyond the limit.
    .gradient = [](ExpressionBuilder& b, const Registers& in, const Attributes& a) -> Registers {
      const Register gate = limited_gate(b, in[0], a), up = limited_up(b, in[1], a), dy = in[2];
      const Register s = b.sigmoid(gate), one = b.constant(1);
      const Register slope = b.mul(b.fma(gate, b.sub(one, s), one), s);
      return {where_within(b, in[0], b.mul(b.mul(slope, up), dy), a),
              where_within(b, b.abs(in[1]), b.mul(b.mul(gate, s), dy), a)};
    },
};

// ---- GELU by its approximation (Hendrycks and Gimpel, 2016): x/2·(1 + tanh z) with z = √(2/π)·(x +
// 0.044715·x³), which is x·sigmoid(2z) and does not cancel where x < 0

constexpr double kTwiceRoot = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // 2·√(2/π)
constexpr double kCubic = 0.044715;

/// sigmoid(2z)
Register gelu_tanh_gate(ExpressionBuilder& b, Register x) {
  const Register square = b.mul(x, x);
  return b.sigmoid(b.mul(x, b.fma(square, b.constant(kTwiceRoot * kCubic), b.constant(kTwiceRoot))));
}

/// With s = sigmoid(2z): s·(1 + x·(1 − s)·(2z)′).
Register gelu_tanh_slope(ExpressionBuilder& b, Register x) {
  const Register square = b.mul(x, x), s = gelu_tanh_gate(b, x), one = b.constant(1);
  const Register inner = b.fma(square, b.constant(3 * kTwiceRoot * kCubic), b.constant(kTwiceRoot));
  return b.mul(b.fma(b.mul(x, b.sub(one, s)), inner, one), s);
}

constexpr Pointwise kGeluTanhDef{
    .id = "gelu_tanh",
    .gradient_id = "gelu_tanh.grad",
    .doc = "x/2·(1 + tanh(√(2/π)(x + 0.044715·x³))) in f32, rounded once",
    .gradient_doc = "dx in f32, an unrounded contribution",
    .forward = [](ExpressionBuilder& b, const Registers& in,
                  const Attributes&) { return b.mul(in[0], gelu_tanh_gate(b, in[0])); },
    .gradient = [](ExpressionBuilder& b, const Registers& in, const Attributes&) -> Registers {
      return {b.mul(gelu_tanh_slope(b, in[0]), in[1])};
    },
};

constexpr Pointwise kGegluTanhDef{
    .id = "geglu_tanh",
    .gradient_id = "geglu_tanh.grad",
    .doc = "gelu_tanh(gate)·up in f32, rounded once",
    .gradient_doc = "dgate, dup in f32, unrounded contributions",
    .first = "gate",
    .second = "up",
    .forward = [](ExpressionBuilder& b, const Registers& in,
                  const Attributes&) { return b.mul(b.mul(in[0], gelu_tanh_gate(b, in[0])), in[1]); },
    .gradient = [](ExpressionBuilder& b, const Registers& in, const Attributes&) -> Registers {
      const Register gate = in[0], up = in[1], dy = in[2];
      return {b.mul(b.mul(gelu_tanh_slope(b, gate), up), dy),
              b.mul(b.mul(gate, gelu_tanh_gate(b, gate)), dy)};
    },
};

// ---- GELU by its definition: x·Φ(x), with Φ of the normal distribution. ½ + ½·erf(x/√2) would cancel far
// left

constexpr Pointwise kGeluErfDef{
    .id = "gelu_erf",
    .gradient_id = "gelu_erf.grad",
    .doc = "x·Φ(x), Φ(x) = ½·erfc(−x/√2), in f32, rounded once",
    .gradient_doc = "dx in f32, an unrounded contribution",
    .forward = [](ExpressionBuilder& b, const Registers& in,
                  const Attributes&) { return b.mul(in[0], b.normal_cdf(in[0])); },
    // Φ(x) + x·e^(−x²/2)/√(2π)
    .gradient = [](ExpressionBuilder& b, const Registers& in, const Attributes&) -> Registers {
      constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
      const Register x = in[0], bell = b.exp(b.mul(b.mul(x, x), b.constant(-0.5)));
      return {b.mul(b.fma(b.mul(x, b.constant(kDensity)), bell, b.normal_cdf(x)), in[1])};
    },
};

}  // namespace

const OpWithGradient kReluSquared = pointwise_op<kReluSquaredDef>();
const OpWithGradient kSwiglu = pointwise_op<kSwigluDef>();
const OpWithGradient kGeluTanh = pointwise_op<kGeluTanhDef>();
const OpWithGradient kGegluTanh = pointwise_op<kGegluTanhDef>();
const OpWithGradient kGeluErf = pointwise_op<kGeluErfDef>();

}  // namespace mantissa::graph
