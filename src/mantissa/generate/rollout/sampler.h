// Sampling of the next token from a row of logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mantissa::rollout {

struct SamplingOptions {
  double temperature = 0;  // 0: the most likely token, or the lowest id of several
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;
  double min_p = 0;  // smallest probability, as a share of the largest one
  double repetition_penalty = 1;
  std::uint64_t seed = 1;
};

/// Throws ConfigError for values out of range.
void check(const SamplingOptions& options);

/// The ids of a sequence so far, to which the repetition penalty applies.
struct Seen {
  std::span<const std::int32_t> prompt = {}, generated = {};
};

/// Draws from softmax(logits / temperature), restricted to the top_k most likely tokens, then to the smallest
/// set with probability top_p, and then to probabilities of at least min_p times the largest one. Before all
/// of this, and also at temperature 0, the logits of seen ids are divided by the repetition penalty if
/// positive, else multiplied by it. These are the formulas and the order of transformers. The draw depends
/// only on (seed, sequence, position), the logits and the seen ids. Computed in double.
std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, std::int64_t sequence,
                    std::int64_t position, const Seen& seen = {});
std::int32_t sample(std::span<const double> logits, const SamplingOptions& options, std::int64_t sequence,
                    std::int64_t position, const Seen& seen = {});

/// Returns the logits after the repetition penalty, for a caller that changes them before it draws.
std::vector<double> scores_of(std::span<const float> logits, const SamplingOptions& options,
                              const Seen& seen);
std::vector<double> scores_of(std::span<const double> logits, const SamplingOptions& options,
                              const Seen& seen);

/// Draws as sample() does from scores_of(), of which some may have become −∞: these are never drawn. With
/// the scores unchanged it draws what sample() draws from the logits. Throws ConfigError if a score is NaN or
/// +∞, or all are −∞.
std::int32_t sample_scores(std::span<const double> scores, SamplingOptions options, std::int64_t sequence,
                           std::int64_t position);

}  // namespace mantissa::rollout
