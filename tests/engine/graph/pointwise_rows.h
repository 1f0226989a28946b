// Rows of pointwise ops: operands, some of them broadcast, and the error that an op's roundings allow.
#pragma once

#include <vector>

#include "engine/graph/op_case.h"
#include "engine/graph/op_sizes.h"
#include "mantissa/kernels/expression.h"

namespace mantissa::graph::testing {

/// x, and `n` operands that are broadcast to every token.
inline auto broadcast(std::size_t n) {
  return [n](std::int64_t t, std::int64_t) {
    std::vector<InputSpec> in(n + 1, {Shape{kWidth}});
    in[0].shape = Shape::tokens(t, {kWidth});
    return in;
  };
}

/// The sum of three, then silu(·)·fourth, as joined by the plan.
inline kernels::Expression fused_expression() {
  kernels::ExpressionBuilder b;
  const auto sum = b.add(b.add(b.load(0), b.load(1)), b.load(2));
  b.store(b.mul(b.mul(sum, b.sigmoid(sum)), b.load(3)), 0);
  b.store(sum, 1);
  return b.build();
}

/// x·second + third
inline kernels::Expression fused_broadcast_expression() {
  kernels::ExpressionBuilder b;
  b.store(b.add(b.mul(b.load(0), b.load(1)), b.load(2)), 0);
  return b.build();
}

/// GELU is x·s with s the sigmoid of u, |u| < 2 |x| + |x|³/4. The relative error of u is four roundings, that
/// of s 1.97 ulp and (1 − s)·|u| times that of u. Errors are relative to |x|·s(|x|), which is |x|/2 or more.
inline Bound gelu_tanh_bound(const Case&) {
  return {8};
}

/// The slope s·(1 + x·(1 − s)·u′): 1 − s has an absolute error of 2.5 roundings of 1, and |u′| < 1.6 + 0.22
/// x².
inline Bound gelu_tanh_grad_bound(const Case& c) {
  const double x = c.largest(0);
  return {12 + 3 * x * (1.6 + 0.22 * x * x)};
}

/// x·Φ(x), relative to |x|·Φ(|x|): Φ has 6.5 ulp of at most two roundings each, the product one more.
inline Bound gelu_erf_bound(const Case&) {
  return {14};
}

/// Φ(x) + x·φ(x), relative to 1/2: Φ ≤ 1 has 6.5 roundings, x·φ(x) ≤ 0.25 four and x²/2 of them by its
/// exponent.
inline Bound gelu_erf_grad_bound(const Case&) {
  return {16};
}

/// x·s with s the sigmoid of z = 1.702·x. z has two roundings, which change s by (1 − s)·|z| < 0.28 of them
/// where x > 0 and less, relative to |x|·s(|x|), elsewhere. s has 1.97 ulp, the product one rounding.
inline Bound quick_gelu_bound(const Case&) {
  return {6};
}

/// The slope s·(1 + z·(1 − s)): 1 − s has an absolute error of 2.5 roundings of 1, and z = 1.702·x.
inline Bound quick_gelu_grad_bound(const Case& c) {
  return {12 + 3 * 1.702 * c.largest(0)};
}

inline void add_activation_rows(std::vector<OpRow>& rows) {
  rows.push_back({"relu_squared", "", same_shape(1), chain(1)});
  rows.push_back({"relu_squared.grad", "", same_shape(2), chain(1)});
  rows.push_back({"swiglu", "", same_shape(2), chain(12)});
  rows.push_back({"swiglu.grad", "", same_shape(3), chain(20)});
  rows.push_back({"gelu_tanh", "", same_shape(1), gelu_tanh_bound});
  rows.push_back({"gelu_tanh.grad", "", same_shape(2), gelu_tanh_grad_bound});
  rows.push_back({"geglu_tanh", "", same_shape(2), gelu_tanh_bound});
  rows.push_back({"geglu_tanh.grad", "", same_shape(3), gelu_tanh_grad_bound});
  rows.push_back({"gelu_erf", "", same_shape(1), gelu_erf_bound});
  rows.push_back({"gelu_erf.grad", "", same_shape(2), gelu_erf_grad_bound});
  rows.push_back({"quick_gelu", "", same_shape(1), quick_gelu_bound});
  rows.push_back({"quick_gelu.grad", "", same_shape(2), quick_gelu_grad_bound});
}

/// dy·(1 − t²): t errs by a few u, and so does t², of at most 1.
inline Bound soft_cap_grad_bound(const Case& c) {
  return {16, 0, {c.largest(1)}};
}

inline void add_elementwise_rows(std::vector<OpRow>& rows) {
  for (const char* op : {"add", "mul", "mul.dx"}) {
    rows.push_back({op, "", same_shape(2), chain(1)});
    rows.push_back({op, "broadcast", broadcast(1), chain(1)});
  }
  rows.push_back({"soft_cap", "", same_shape(1), chain(8), {{"cap", 1.5}}});
  rows.push_back({"soft_cap.grad", "", same_shape(2), soft_cap_grad_bound, {{"cap", 1.5}}});
  rows.push_back({"scale", "", same_shape(1), chain(2), {{"factor", 0.3}}});
  rows.push_back({"scale.grad", "", same_shape(2), chain(2), {{"factor", 0.3}}});
}

inline void add_pointwise_rows(std::vector<OpRow>& rows) {
  add_activation_rows(rows);
  add_elementwise_rows(rows);
  rows.push_back({"sum", "", same_shape(3), chain(2), {{"of", 0}}});
  rows.push_back({"sum_uses",
                  "",
                  [](std::int64_t, std::int64_t) {
                    return std::vector<InputSpec>(2, {Shape{50, kWidth}, Stored::arithmetic});
                  },
                  chain(1),
                  {{"of", 0}}});
  rows.push_back({"cast", "", same_shape(1, Stored::arithmetic), chain(0)});
  rows.push_back({"kv", "", same_shape(1, Stored::arithmetic), chain(0)});
  rows.push_back({"fused", "", same_shape(4), chain(16), {}, 0, {}, fused_expression()});
  rows.push_back({"fused", "broadcast", broadcast(2), chain(2), {}, 0, {}, fused_broadcast_expression()});
}

}  // namespace mantissa::graph::testing
