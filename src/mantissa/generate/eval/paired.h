// Differences between two evaluations of the same rows and passages, such as those under two policies.
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/generate/eval/evaluate.h"

namespace mantissa::eval {

/// The mean of differences by row or passage. Both evaluations see the same text, so the error of this mean
/// is much smaller than those of the two means.
struct PairedMean {
  double difference = 0;
  std::optional<double> standard_error;  // null for one pair
  std::int64_t pairs = 0;
};

/// The mean difference `other` − `first`.
struct PairedChange {
  std::optional<PairedMean> loss;           // over rows, weighted by their tokens
  std::optional<PairedMean> accuracy;       // over passages, a share of 1
  std::optional<PairedMean> word_log_prob;  // over passages, nats
  std::int64_t gained = 0, lost = 0;        // passages that only `other` or only `first` has right
};

/// Compares the rows and passages that both have completed. The standard error is √(Σ w²(d − m)² · n / (n −
/// 1)) / Σ w for differences d with mean m and weights w.
PairedChange paired_change(const Evaluation& first, const Evaluation& other);

}  // namespace mantissa::eval
