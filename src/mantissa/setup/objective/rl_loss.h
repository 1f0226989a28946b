// The loss of reinforcement learning: clipped term of the actor, the model in training, values, entropy,
// divergence from the reference.
//
// Sources: clipping: Schulman et al., arXiv:1707.06347; a higher upper bound: Yu et al. (DAPO),
// arXiv:2503.14476; dual clip: Ye et al., arXiv:1912.09729; truncated importance weights: Ionides, 2008, and
// Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training", 2025; means: Liu et
// al. (Dr. GRPO), arXiv:2503.20783.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "mantissa/setup/objective/settings.h"

namespace mantissa::objective {

/// Tokens of one row, T of each span. A token counts if its mask is not 0; the values at others may be
/// anything, also NaN. Spans that the settings do not need may be empty.
struct RlRow {
  std::span<const float> mask;
  std::span<const double> log_probs, old_log_probs, advantages;
  std::span<const double> ref_log_probs = {};      // for kl_in_loss()
  std::span<const double> rollout_log_probs = {};  // of the sampler, for importance_cap > 0
  std::span<const double> values = {}, old_values = {}, returns = {};  // for needs_values()
  std::span<const double> entropies = {};                              // for entropy_coef > 0
};

/// Properties of an optimizer step that are known before its first micro-batch.
struct RlStep {
  std::int64_t tokens = 0;  // that count
  std::int64_t rows = 0;    // with at least one of them
  double loss_scale = 1;    // factor of every seed, but not of the loss
};

/// Memory for d loss / d input of each token, T of each span; empty: not wanted. Every element is written: 0
/// at tokens that do not count.
struct RlSeeds {
  std::span<double> log_probs, values = {}, entropies = {};
};

/// Parts of the loss, each with its coefficient. Their sum is the loss.
struct RlLoss {
  double actor = 0, kl = 0, value = 0, entropy = 0;
  double total() const { return actor + kl + value + entropy; }
  void add(const RlLoss& other);
};

/// Weights w: their range and sums.
struct Weights {
  double min = std::numeric_limits<double>::infinity();  // of no weights: inf
  double max = -std::numeric_limits<double>::infinity();
  double count = 0, sum = 0, squares = 0;
  void add(double weight);
  void add(const Weights& other);
  /// Returns (Σ w)² / (n Σ w²), the effective sample size as a share of the n weights.
  double effective_share() const;
};

/// Sums over the tokens that count.
struct RlStatistics {
  std::int64_t tokens = 0;
  std::int64_t clipped_low = 0, clipped_high = 0;  // without a gradient, since the ratio is beyond a bound
  std::int64_t clipped_dual = 0;                   // the same for dual_clip
  std::int64_t values_clipped = 0;                 // value_clip holds the value loss
  Weights ratio;                                   // e^(log_prob − old_log_prob)
  Weights importance;                              // of tokens or rows, after the cap
  double kl = 0;       // Σ of the estimates against the reference, if kl_in_loss()
  double old_kl = 0;   // Σ of k3 without its bound against the old policy
  double entropy = 0;  // Σ of the entropies, if they are given
  void add(const RlStatistics& other);
};

/// Returns the row's part of the loss of a step, writes the seeds, and adds to `statistics`. The loss is
///   mean over tokens of (w · actor_t + kl_coef · kl_t + value_coef · value_t − entropy_coef · entropy_t)
/// with `mean` as in LossMean and, for ρ = e^(log_prob − old_log_prob) and the advantage A,
///   actor_t = −min(ρ A, clip(ρ, 1 − clip_low, 1 + clip_high) A); at most −dual_clip · A if A < 0
///   kl_t     = the estimate for log_prob and ref_log_prob (kl.h)
///   value_t  = ½ max((V − G)², (V_old + clip(V − V_old, ±value_clip) − G)²) with the return G
///   w        = min(importance_cap, e^(old_log_prob − rollout_log_prob)) of the token, or of the sum of the
///              differences over the row; constant in the gradient. 1 if importance_cap = 0
/// Parts with a coefficient of 0 are absent. At a tie of value_t's maximum, the gradient is the mean of both,
/// as in PyTorch. The sums of the tokens of a row are f64, in order; a step's are the caller's.
RlLoss rl_loss(const RlRow& row, const RlSettings& settings, const RlStep& step, const RlSeeds& seeds,
               RlStatistics& statistics);

/// Returns the number of tokens that count.
std::int64_t counted_tokens(std::span<const float> mask);

}  // namespace mantissa::objective
