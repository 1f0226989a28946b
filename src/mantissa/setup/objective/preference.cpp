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

/// Returns −(1 − ε) log σ(x) − ε log σ(−x), and its derivative.
std::pair<double, double> logistic(double x, double smoothing) {
  return {(1 - smoothing) * minus_log_sigmoid(x) + smoothing * minus_log_sigmoid(-x),
          smoothing * sigmoid(x) - (1 - smoothing) * sigmoid(-x)};
}

/// Returns x − log(1 − eˣ), and its derivative. A probability that rounds to 1 counts as 1 − 2^−52, so that
/// its odds are finite.
std::pair<double, double> log_odds(double x) {
  const double below = -std::expm1(std::min(x, -0x1p-52));
  return {x - std::log(below), 1 / below};
}

/// The mean log-probabilities of the tokens of both answers, and their derivatives by the sums.
struct Means {
  double chosen, rejected, d_chosen, d_rejected;
  explicit Means(const PreferencePair& pair)
      : d_chosen(1 / static_cast<double>(pair.chosen_tokens)),
        d_rejected(1 / static_cast<double>(pair.rejected_tokens)) {
    chosen = pair.chosen * d_chosen;
    rejected = pair.rejected * d_rejected;
  }
};

PairLoss sigmoid_loss(double delta, const PreferenceSettings& s) {
  const auto [loss, slope] = logistic(s.beta * delta, s.label_smoothing);
  return {loss, s.beta * slope, -s.beta * slope};
}

PairLoss ipo_loss(double delta, const PreferenceSettings& s) {
  const double error = delta - 1 / (2 * s.beta);
  return {error * error, 2 * error, -2 * error};
}

PairLoss simpo_loss(const Means& means, const PreferenceSettings& s) {
  const auto [loss, slope] = logistic(s.beta * (means.chosen - means.rejected) - s.gamma, s.label_smoothing);
  return {loss, s.beta * slope * means.d_chosen, -s.beta * slope * means.d_rejected};
}

PairLoss orpo_loss(const Means& means, const PreferenceSettings& s) {
  const auto [chosen, d_chosen] = log_odds(means.chosen);
  const auto [rejected, d_rejected] = log_odds(means.rejected);
  const auto [loss, slope] = logistic(chosen - rejected, 0);
  return {s.beta * loss - means.chosen, (s.beta * slope * d_chosen - 1) * means.d_chosen,
          -s.beta * slope * d_rejected * means.d_rejected};
}

PairLoss plain_loss(const PreferencePair& pair, const PreferenceSettings& s) {
  const double delta = (pair.chosen - pair.ref_chosen) - (pair.rejected - pair.ref_rejected);
  switch (s.loss) {
    case PreferenceLoss::sigmoid:
      return sigmoid_loss(delta, s);
    case PreferenceLoss::ipo:
      return ipo_loss(delta, s);
    case PreferenceLoss::simpo:
      return simpo_loss(Means(pair), s);
    case PreferenceLoss::orpo:
      return orpo_loss(Means(pair), s);
  }
  return {};
}

}  // namespace

PairLoss preference_loss(const PreferencePair& pair, const PreferenceSettings& s) {
  PairLoss out = plain_loss(pair, s);
  if (s.nll_coef != 0) {
    const double share = s.nll_coef / static_cast<double>(pair.chosen_tokens);
    out.loss -= share * pair.chosen;
    out.d_chosen -= share;
  }
  return out;
}

std::pair<double, double> implicit_rewards(const PreferencePair& pair, const PreferenceSettings& s) {
  if (s.has_reference())
    return {s.beta * (pair.chosen - pair.ref_chosen), s.beta * (pair.rejected - pair.ref_rejected)};
  const Means means(pair);
  return {s.beta * means.chosen, s.beta * means.rejected};
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
