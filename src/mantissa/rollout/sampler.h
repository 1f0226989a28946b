// Sampling of the next token from a row of logits.
#pragma once

#include <cstdint>
#include <span>

namespace mantissa::rollout {

struct SamplingOptions {
  double temperature = 0;  // 0: the most likely token, or the lowest id of several
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;
  std::uint64_t seed = 1;
};

/// Throws ConfigError for values out of range.
void check(const SamplingOptions& options);

/// Draws from softmax(logits / temperature), restricted to the top_k most likely tokens and to the smallest
/// set with probability top_p. The draw depends only on (seed, sequence, position) and the logits. Computed
/// in double.
std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, std::int64_t sequence,
                    std::int64_t position);
std::int32_t sample(std::span<const double> logits, const SamplingOptions& options, std::int64_t sequence,
                    std::int64_t position);

}  // namespace mantissa::rollout
