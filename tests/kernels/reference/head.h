// Reference for the fused head by its formulas, in double.
#pragma once

#include <cstdint>

namespace mantissa::kernels::reference {

/// The inputs of both passes. x: [tokens, channels]; weight: [vocabulary, channels]; ids: [tokens], −1 for
/// tokens without an id; dense.
struct Head {
  std::int64_t tokens = 0;
  std::int64_t channels = 0;
  std::int64_t vocabulary = 0;
  const double* x = nullptr;
  const double* weight = nullptr;
  const std::int32_t* ids = nullptr;
  double soft_cap = 0;  // 0: none
  double l2wrap = 0;    // 0: none
  double z_loss = 0;    // 0: none
};

/// With logits l = x·Wᵀ, or l = soft_cap · tanh(x·Wᵀ / soft_cap): lse = log Σ exp l; log_prob = l[id] − lse,
/// 0 if id is −1; entropy = lse − Σ p·l. All [tokens]; `entropy` may be null.
void log_prob(const Head& head, double* log_prob, double* lse, double* entropy);

/// Upstream gradients [tokens]. `entropy` holds the entropies; both are null without a gradient of them.
struct HeadSeeds {
  const double* dlog_prob = nullptr;
  const double* dentropy = nullptr;
  const double* entropy = nullptr;
};

/// dlogits = d · (onehot(id) − p) − e · p · (log p + entropy) with log p = l − lse, zero if id is −1, times
/// 1 − (l / soft_cap)². With l2wrap the first largest l adds −d · l2wrap · l to its gradient, times the same
/// slope; with z_loss every l −d · 2 · z_loss · lse · p. dx = dlogits·W; dweight = dlogitsᵀ·x.
void log_prob_backward(const Head& head, const double* lse, const HeadSeeds& seeds, double* dx,
                       double* dweight);

}  // namespace mantissa::kernels::reference
