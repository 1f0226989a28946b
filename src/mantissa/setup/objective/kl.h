// Estimators of the divergence of the model in training from its reference, for one sampled token.
// Schulman, "Approximating KL divergence", 2020: http://joschu.net/blog/kl-approx.html
#pragma once

#include "mantissa/setup/objective/settings.h"

namespace mantissa::objective {

/// The estimate, and its derivative by the log-probability of the model in training.
struct KlTerm {
  double value = 0, derivative = 0;
};

/// The largest value of k3, as in Logic-RL and verl.
inline constexpr double kLargestK3 = 10;

/// Returns the term for a token with log-probability p under the model in training and q under the reference:
///   k1 = p − q
///   k2 = ½ (p − q)²
///   k3 = e^(q − p) − 1 − (q − p), at most 10; where it is larger, it is 10 with the derivative 0
/// and 0 for Kl::none.
KlTerm kl_term(Kl estimator, double log_prob, double ref_log_prob);

}  // namespace mantissa::objective
