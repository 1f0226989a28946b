#include "mantissa/setup/objective/kl.h"

#include <cmath>

namespace mantissa::objective {

KlTerm kl_term(Kl estimator, double log_prob, double ref_log_prob) {
  const double d = log_prob - ref_log_prob;
  switch (estimator) {
    case Kl::none:
      return {};
    case Kl::k1:
      return {d, 1};
    case Kl::k2:
      return {0.5 * d * d, d};
    case Kl::k3: {
      const double above = std::expm1(-d);  // e^(q − p) − 1, exact also for close values
      const double value = above + d;
      if (value > kLargestK3) return {kLargestK3, 0};
      return {value, -above};
    }
  }
  return {};
}

}  // namespace mantissa::objective
