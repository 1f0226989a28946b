// The load-balancing loss of a mixture of experts (Fedus et al., arXiv 2101.03961, equations 4 to 6), over
// each row of the batch.
#pragma once

#include <cstdint>
#include <span>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// For each token, the experts' shares of its row: share[t, e] = n_e / (L · T), with T the tokens of the row
/// that t belongs to, and n_e the number of times that they chose expert e in L layers. The quotient is
/// rounded once to f32 or f64. choices: of each layer [tokens, chosen]; share: [tokens, experts].
struct ExpertShares {
  std::int64_t experts = 0, chosen = 0;
  std::span<const std::int32_t* const> choices;
  Matrix share;
};
void expert_shares(const Context& ctx, const Extent& extent, const ExpertShares& s);

/// balance[t] = (E / L) · Σ_l Σ_e share[t, e] · p_l[t, e], whose mean over the tokens of a row is the loss of
/// balance of the row: for E experts and the softmax p_l of the logits of layer l. The sum over experts has
/// 16 virtual lanes with fused multiply-adds of the exponentials, then Σ e^l divides it; layers are added in
/// ascending order. logits: of each layer [tokens, experts]; balance: [tokens]. The arithmetic is that of
/// `share`, f32 or f64.
struct Balance {
  std::int64_t experts = 0;
  std::span<const ConstMatrix> logits;
  ConstMatrix share;
  Matrix balance;
};
void balance(const Context& ctx, std::int64_t tokens, const Balance& b);

/// dlogits[t, e] = g · p[t, e] · (share[t, e] − Σ_i share[t, i] · p[t, i]) for one layer, with g = factor ·
/// dbalance[t]. The shares are constants. dbalance: [tokens].
struct BalanceBackward {
  std::int64_t experts = 0;
  double factor = 1;  // rounded to the arithmetic
  ConstMatrix dbalance, share, logits;
  Matrix dlogits;
};
void balance_backward(const Context& ctx, std::int64_t tokens, const BalanceBackward& b);

}  // namespace mantissa::kernels
