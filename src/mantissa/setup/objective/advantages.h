// Rewards, returns and advantages of the responses of a rollout.
//
// Sources: PPO and GAE: Schulman et al., arXiv:1707.06347 and arXiv:1506.02438. RLOO: Ahmadian et al.,
// arXiv:2402.14740. GRPO: Shao et al., arXiv:2402.03300. Dr. GRPO: Liu et al., arXiv:2503.20783. REINFORCE++
// and its baseline: Hu et al., arXiv:2501.03262. The constants are those of verl and Logic-RL.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/setup/objective/settings.h"

namespace mantissa::objective {

/// The responses of a rollout: N rows of T tokens each. A token counts if its mask is not 0. Values at other
/// tokens may be anything, also NaN. A row without a token that counts is left out of every mean.
struct Responses {
  std::int64_t rows = 0, length = 0;  // N, T
  std::span<const float> mask;        // [N, T]
  /// [N, T], or [N]: the reward of a response, received at its last token.
  std::span<const double> rewards;
  std::span<const std::int64_t> groups = {};   // [N]; equal numbers are one prompt. For needs_groups()
  std::span<const double> old_values = {};     // [N, T]. For needs_values()
  std::span<const double> old_log_probs = {};  // [N, T]. For kl_in_reward(), as the next
  std::span<const double> ref_log_probs = {};
};

/// [N, T] each, 0 at tokens that do not count.
struct Advantages {
  std::vector<double> advantages;
  std::vector<double> returns;  // before whitening; the targets of the values in ppo
};

inline constexpr double kGroupEpsilon = 1e-6, kWhitenEpsilon = 1e-8;

/// Returns the advantages of all responses. Rewards r_t are those given, minus kl_coef times the divergence
/// of old_log_probs from ref_log_probs (kl.h) if kl_in_reward(). R is the sum of a row's rewards; mean and
/// std (unbiased) are those of R over the group.
///   ppo                   A_t = δ_t + γλ A_{t+1}, δ_t = r_t + γ V_{t+1} − V_t; returns A_t + V_t. V and A
///   are
///                         0 after the last token; tokens that do not count are skipped.
///   reinforce++           G_t = r_t + γ G_{t+1}, which begins again at 0 after a token that does not count
///   grpo                  (R − mean) / (std + 1e-6)
///   dr-grpo               R − mean
///   reinforce++-baseline  R − mean
///   rloo                  R − mean of the other samples' R
/// A group of one sample compares nothing: its advantage is 0. With `whiten`, the advantages then become
/// (A − mean) / sqrt(variance + 1e-8), with the unbiased variance over all tokens that count; the variance of
/// one token is 0. All sums are f64, in order.
Advantages advantages(const Responses& responses, const RlSettings& settings);

}  // namespace mantissa::objective
