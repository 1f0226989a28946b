// Losses of pairs of answers, of which one is preferred.
//
// Sources: DPO: Rafailov et al., arXiv:2305.18290; cDPO: Mitchell, https://ericmitchell.ai/cdpo.pdf; IPO:
// Azar et al., arXiv:2310.12036, equation 17; SimPO: Meng et al., arXiv:2405.14734, equation 6; ORPO: Hong et
// al., arXiv:2403.07691, equations 6 and 7; with log-likelihood: Grattafiori et al. (Llama 3),
// arXiv:2407.21783; reward model: Bradley and Terry, 1952, and Ouyang et al., arXiv:2203.02155; margin:
// Touvron et al. (Llama 2), arXiv:2307.09288.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "mantissa/setup/objective/settings.h"

namespace mantissa::objective {

/// The log-probabilities of a pair: the sums over the tokens of each answer.
struct PreferencePair {
  double chosen = 0, rejected = 0;                      // under the model in training
  double ref_chosen = 0, ref_rejected = 0;              // under the reference, for losses that have one
  std::int64_t chosen_tokens = 0, rejected_tokens = 0;  // for simpo, orpo, and the first for nll_coef > 0
};

/// The loss of a pair, and its derivatives by the two sums of the model in training or by the two scores,
/// which are also the derivatives by the log-probability of each token.
struct PairLoss {
  double loss = 0;
  double d_chosen = 0, d_rejected = 0;
};

/// Returns, with the label smoothing ε and c = chosen / chosen_tokens, r = rejected / rejected_tokens,
///   sigmoid: −(1 − ε) log σ(β Δ) − ε log σ(−β Δ), Δ = (chosen − ref_chosen) − (rejected − ref_rejected)
///   ipo:     (Δ − 1 / (2β))²
///   simpo:   as sigmoid, with β (c − r) − γ in place of β Δ
///   orpo:    −c − β log σ(o(c) − o(r)), o(x) = x − log(1 − eˣ), the log-odds of an answer
/// and, for nll_coef, − nll_coef · c. The loss of a step is the mean over its pairs.
PairLoss preference_loss(const PreferencePair& pair, const PreferenceSettings& settings);

/// Returns the implicit rewards of a pair: β (log-probability − that of the reference), or β c and β r
/// without a reference.
std::pair<double, double> implicit_rewards(const PreferencePair& pair, const PreferenceSettings& settings);

/// Returns −log σ(chosen − rejected − margin). The loss of a step is the mean over its pairs.
PairLoss reward_loss(double chosen, double rejected, double margin = 0);

/// Returns the sum over the tokens whose mask is not 0, in order.
double masked_sum(std::span<const double> values, std::span<const float> mask);

}  // namespace mantissa::objective
