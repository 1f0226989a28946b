#include "kernels/reference/head.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace mantissa::kernels::reference {
namespace {

std::vector<double> logits_of(const Head& head, std::int64_t token) {
  std::vector<double> logits(static_cast<std::size_t>(head.vocabulary), 0.0);
  for (std::int64_t v = 0; v < head.vocabulary; ++v) {
    for (std::int64_t c = 0; c < head.channels; ++c) {
      logits[static_cast<std::size_t>(v)] +=
          head.x[token * head.channels + c] * head.weight[v * head.channels + c];
    }
    double& l = logits[static_cast<std::size_t>(v)];
    if (head.soft_cap != 0) l = head.soft_cap * std::tanh(l / head.soft_cap);
  }
  return logits;
}

/// Returns dl/dz for a logit l = soft_cap · tanh(z / soft_cap).
double slope(const Head& head, double l) {
  return head.soft_cap == 0 ? 1 : 1 - l / head.soft_cap * (l / head.soft_cap);
}

}  // namespace

void log_prob(const Head& head, double* log_prob, double* lse, double* entropy) {
  for (std::int64_t t = 0; t < head.tokens; ++t) {
    const std::vector<double> logits = logits_of(head, t);
    const double maximum = *std::max_element(logits.begin(), logits.end());
    double sum = 0, weighted = 0;
    for (const double l : logits) {
      sum += std::exp(l - maximum);
      weighted += std::exp(l - maximum) * l;
    }
    lse[t] = maximum + std::log(sum);
    log_prob[t] = head.ids[t] < 0 ? 0 : logits[static_cast<std::size_t>(head.ids[t])] - lse[t];
    if (entropy != nullptr) entropy[t] = lse[t] - weighted / sum;
  }
}

void log_prob_backward(const Head& head, const double* lse, const HeadSeeds& seeds, double* dx,
                       double* dweight) {
  std::fill_n(dx, head.tokens * head.channels, 0.0);
  std::fill_n(dweight, head.vocabulary * head.channels, 0.0);
  for (std::int64_t t = 0; t < head.tokens; ++t) {
    if (head.ids[t] < 0) continue;
    const std::vector<double> logits = logits_of(head, t);
    const auto top = std::max_element(logits.begin(), logits.end()) - logits.begin();
    for (std::int64_t v = 0; v < head.vocabulary; ++v) {
      const double l = logits[static_cast<std::size_t>(v)];
      const double p = std::exp(l - lse[t]);
      double d = seeds.dlog_prob[t] * ((v == head.ids[t] ? 1.0 : 0.0) - p);
      if (seeds.dentropy != nullptr) d -= seeds.dentropy[t] * p * (l - lse[t] + seeds.entropy[t]);
      d -= seeds.dlog_prob[t] * 2 * head.z_loss * lse[t] * p;
      if (v == top) d -= seeds.dlog_prob[t] * head.l2wrap * l;
      d *= slope(head, l);
      for (std::int64_t c = 0; c < head.channels; ++c) {
        dx[t * head.channels + c] += d * head.weight[v * head.channels + c];
        dweight[v * head.channels + c] += d * head.x[t * head.channels + c];
      }
    }
  }
}

}  // namespace mantissa::kernels::reference
