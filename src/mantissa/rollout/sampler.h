// The next token from a row of logits.
#pragma once

#include <cstdint>
#include <span>

namespace mantissa::rollout {

struct SamplingOptions {
  double temperature = 0;  // 0: the most likely token (the lowest id among equals)
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;
  std::uint64_t seed = 1;
};

/// Throws ConfigError for values out of range.
void check(const SamplingOptions& options);

/// Draws from softmax(logits / temperature) restricted to the top_k most likely and to the fewest that hold
/// top_p of the probability. The draw depends on (seed, sequence, position) and the logits only. Computed in
/// double.
std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, std::int64_t sequence,
                    std::int64_t position);
std::int32_t sample(std::span<const double> logits, const SamplingOptions& options, std::int64_t sequence,
                    std::int64_t position);

}  // namespace mantissa::rollout
