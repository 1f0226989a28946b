#include "mantissa/setup/objective/preference.h"

#include <algorithm>
#include <cmath>

namespace mantissa::objective {
namespace {

/// Returns −log σ(x) without overflow.
double minus_log_sigmoid(double x) {
  return std::max(-x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

/// Returns σ(x).
double sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

}  // namespace

PairLoss dpo_loss(const PreferencePair& pair, const PreferenceSettings& s) {
  const double delta = (pair.chosen - pair.ref_chosen) - (pair.rejected - pair.ref_rejected);
  PairLoss out;
  if (s.ipo) {
    const double error = delta - 1 / (2 * s.beta);
    out = {error * error, 2 * error, -2 * error};
  } else {
    const double logit = s.beta * delta, smoothing = s.label_smoothing;
    const double derivative = s.beta * (smoothing * sigmoid(logit) - (1 - smoothing) * sigmoid(-logit));
    out = {(1 - smoothing) * minus_log_sigmoid(logit) + smoothing * minus_log_sigmoid(-logit), derivative,
           -derivative};
  }
  if (s.nll_coef != 0) {
    const double share = s.nll_coef / static_cast<double>(pair.chosen_tokens);
    out.loss -= share * pair.chosen;
    out.d_chosen -= share;
  }
  return out;
}

double implicit_reward(double log_prob, double ref_log_prob, const PreferenceSettings& settings) {
  return settings.beta * (log_prob - ref_log_prob);
}

PairLoss reward_loss(double chosen, double rejected, double margin) {
  const double logit = chosen - rejected - margin, derivative = -sigmoid(-logit);
  return {minus_log_sigmoid(logit), derivative, -derivative};
}

double masked_sum(std::span<const double> values, std::span<const float> mask) {
  double sum = 0;
  for (std::size_t t = 0; t < values.size(); ++t) {
    if (mask[t] != 0) sum += values[t];
  }
  return sum;
}

}  // namespace mantissa::objective
