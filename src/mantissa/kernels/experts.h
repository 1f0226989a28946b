// The router of a mixture of experts: the choice of experts for each token, and the weighted sum of their
// results (Shazeer et al., arXiv 1701.06538).
#pragma once

#include <cstdint>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// The `chosen` experts with the largest logits of each token, in ascending order of their ids; of equal
/// logits the lower id wins. With e = Exp(logit − largest) of core/numeric/math-inl.h, the weight of expert j
/// is e_j / Σ e, over all experts (16 virtual lanes) or, if `normalized`, over the chosen ones (a chain of
/// additions in ascending order). logits: [tokens, experts]; weights, choice: [tokens, chosen], dense. The
/// arithmetic is that of `weights`, f32 or f64; `interior` below it rounds the logits first.
struct Route {
  std::int64_t experts = 0, chosen = 0;
  bool normalized = false;
  ConstMatrix logits;
  Matrix weights;
  std::int32_t* choice = nullptr;
  Scalar interior = Scalar::f64;
};
void route(const Context& ctx, std::int64_t tokens, const Route& r);

/// The gradient of the weights w of the chosen experts C, with s = Σ_{i ∈ C} w_i dw_i, a chain of fused
/// multiply-adds in ascending order: if `normalized`, dlogit_j = w_j (dw_j − s) for j in C, zero for the
/// others; else dlogit_e = p_e (dw_e − s) for every expert, with the softmax p as route() computes it and
/// dw_e = 0 outside C. The choice has no gradient. dweights, weights: [tokens, chosen]; logits, dlogits:
/// [tokens, experts].
struct RouteBackward {
  std::int64_t experts = 0, chosen = 0;
  bool normalized = false;
  ConstMatrix dweights, weights;
  const std::int32_t* choice = nullptr;
  ConstMatrix logits;  // unused if `normalized`
  Matrix dlogits;
  Scalar interior = Scalar::f64;
};
void route_backward(const Context& ctx, std::int64_t tokens, const RouteBackward& r);

/// y[t] = Σ_j weights[t, j] · x[t, j]: a chain of fused multiply-adds from zero over the chosen experts in
/// ascending order, rounded once. x: [tokens · chosen, width]; weights: [tokens, chosen]; y: [tokens, width].
/// The arithmetic is that of the weights, f32 or f64.
struct Combine {
  std::int64_t chosen = 0, width = 0;
  ConstMatrix x, weights;
  Matrix y;
};
void combine(const Context& ctx, std::int64_t tokens, const Combine& c);

/// dx[t, j] = weights[t, j] · dy[t], rounded once.
struct CombineDx {
  std::int64_t chosen = 0, width = 0;
  ConstMatrix dy, weights;
  Matrix dx;
};
void combine_dx(const Context& ctx, std::int64_t tokens, const CombineDx& c);

/// dweights[t, j] = Σ dy[t] · x[t, j] over 16 virtual lanes, a chain of fused multiply-adds in each.
struct CombineDweights {
  std::int64_t chosen = 0, width = 0;
  ConstMatrix dy, x;
  Matrix dweights;
};
void combine_dweights(const Context& ctx, std::int64_t tokens, const CombineDweights& c);

}  // namespace mantissa::kernels
