// Losses of pairs of answers, of which one is preferred.
//
// Sources: DPO: Rafailov et al., arXiv:2305.18290; cDPO: Mitchell, https://ericmitchell.ai/cdpo.pdf; IPO:
// Azar et al., arXiv:2310.12036, equation 17; with log-likelihood: Grattafiori et al. (Llama 3),
// arXiv:2407.21783; reward model: Bradley and Terry, 1952, and Ouyang et al., arXiv:2203.02155; margin:
// Touvron et al. (Llama 2), arXiv:2307.09288.
#pragma once

#include <cstdint>
#include <span>

#include "mantissa/setup/objective/settings.h"

namespace mantissa::objective {

/// The log-probabilities of a pair: the sums over the tokens of each answer.
struct PreferencePair {
  double chosen = 0, rejected = 0;          // under the model in training
  double ref_chosen = 0, ref_rejected = 0;  // under the reference
  std::int64_t chosen_tokens = 0;           // for nll_coef > 0
};

/// The loss of a pair, and its derivatives by the two sums of the model in training or by the two scores,
/// which are also the derivatives by the log-probability of each token.
struct PairLoss {
  double loss = 0;
  double d_chosen = 0, d_rejected = 0;
};

/// Returns for Δ = (chosen − ref_chosen) − (rejected − ref_rejected)
///   −(1 − ε) log σ(β Δ) − ε log σ(−β Δ), with the label smoothing ε; or, with `ipo`, (Δ − 1 / (2β))²
///   − nll_coef · chosen / chosen_tokens
/// The loss of a step is the mean over its pairs.
PairLoss dpo_loss(const PreferencePair& pair, const PreferenceSettings& settings);

/// Returns β (log_prob − ref_log_prob), the implicit reward of an answer.
double implicit_reward(double log_prob, double ref_log_prob, const PreferenceSettings& settings);

/// Returns −log σ(chosen − rejected − margin). The loss of a step is the mean over its pairs.
PairLoss reward_loss(double chosen, double rejected, double margin = 0);

/// Returns the sum over the tokens whose mask is not 0, in order.
double masked_sum(std::span<const double> values, std::span<const float> mask);

}  // namespace mantissa::objective
