// The log-probabilities of tokens from a row of logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "mantissa/core/numeric/round.h"
#include "mantissa/core/numeric/row_math.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/kernels/head.h"

namespace mantissa::rollout {

/// Returns true if no logit is inf or NaN.
template <class T>
bool all_finite(std::span<const T> logits) {
  unsigned finite = 1;  // without a branch, so that the compiler compares several at once
  for (const T logit : logits)
    finite &= static_cast<unsigned>(std::abs(logit) <= std::numeric_limits<T>::max());
  return finite != 0;
}

/// Returns the entropy of softmax(logits) in nats, computed in T with sums in double.
template <class T>
double entropy_of(std::span<const T> logits) {
  const T max = *std::max_element(logits.begin(), logits.end());
  std::vector<T> weights(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) weights[i] = logits[i] - max;
  map_row(MathFunction::exp, weights.data(), weights.size(), weights.data());
  double total = 0, moment = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    total += static_cast<double>(weights[i]);
    moment += static_cast<double>(weights[i]) * static_cast<double>(logits[i] - max);
  }
  return std::log(total) - moment / total;
}

/// The log-probabilities of a row of logits: logits[id] − log-sum-exp, rounded to the arithmetic's format:
/// the bits of a trace. `type` is T, and `softmax` that of the program.
template <class T>
class LogProbs {
 public:
  LogProbs(const runtime::Device& device, std::span<const T> logits, Scalar type, Scalar softmax)
      : logits_(logits), softmax_(softmax) {
    const auto vocabulary = static_cast<std::int64_t>(logits.size());
    kernels::log_sum_exp(device.serial(), 1, vocabulary, {logits.data(), type, vocabulary}, {&lse_, type, 1},
                         softmax);
  }
  double of(std::int32_t id) const {
    const double logit = round_to(static_cast<double>(logits_[static_cast<std::size_t>(id)]), softmax_);
    return static_cast<double>(static_cast<T>(round_to(logit - static_cast<double>(lse_), softmax_)));
  }

 private:
  std::span<const T> logits_;
  Scalar softmax_;
  T lse_ = 0;
};

/// Returns LogProbs::of(id).
template <class T>
double log_prob_of(const runtime::Device& device, std::span<const T> logits, Scalar type, Scalar softmax,
                   std::int32_t id) {
  return LogProbs<T>(device, logits, type, softmax).of(id);
}

}  // namespace mantissa::rollout
