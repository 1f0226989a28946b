#include "mantissa/rollout/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/numeric/philox.h"

namespace mantissa::rollout {
namespace {

template <class T>
std::int32_t most_likely(std::span<const T> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// Returns the ids by decreasing probability, equal ones by increasing id. Only the first `count` are sorted.
template <class T>
std::vector<std::int32_t> ranked(std::span<const T> logits, std::size_t count) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto more_likely = [&](std::int32_t a, std::int32_t b) {
    const T x = logits[static_cast<std::size_t>(a)];
    const T y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(order.begin(), end, order.end(), more_likely);
  order.resize(count);
  return order;
}

template <class T>
std::int32_t draw(std::span<const T> logits, const SamplingOptions& o, std::int64_t sequence,
                  std::int64_t position) {
  if (o.temperature == 0) return most_likely(logits);
  const std::size_t candidates =
      o.top_k > 0 ? std::min(logits.size(), static_cast<std::size_t>(o.top_k)) : logits.size();
  const std::vector<std::int32_t> order = ranked(logits, candidates);
  const double max = static_cast<double>(logits[static_cast<std::size_t>(order.front())]);
  std::vector<double> p(order.size());
  double total = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    p[i] = std::exp((static_cast<double>(logits[static_cast<std::size_t>(order[i])]) - max) / o.temperature);
    total += p[i];
  }
  // The nucleus: the first ids whose probabilities sum to top_p.
  double kept = 0;
  std::size_t count = 0;
  while (count < p.size() && (count == 0 || kept < o.top_p * total)) kept += p[count++];
  while (count > 1 && p[count - 1] < o.min_p * p[0]) kept -= p[--count];
  const RandomStream stream(o.seed, RandomUse::sampling, static_cast<std::uint64_t>(sequence), 0);
  const double u = uniform(stream, static_cast<std::uint64_t>(position)) * kept;
  double below = 0;
  for (std::size_t i = 0; i < count; ++i) {
    below += p[i];
    if (u < below) return order[i];
  }
  return order[count - 1];
}

/// Returns the logits after the repetition penalty.
template <class T>
std::vector<T> penalised(std::span<const T> logits, double penalty, const Seen& seen) {
  std::vector<T> scores(logits.begin(), logits.end());
  for (const std::span<const std::int32_t> ids : {seen.prompt, seen.generated}) {
    for (const std::int32_t id : ids) {
      const double logit = static_cast<double>(logits[static_cast<std::size_t>(id)]);
      scores[static_cast<std::size_t>(id)] = static_cast<T>(logit < 0 ? logit * penalty : logit / penalty);
    }
  }
  return scores;
}

template <class T>
std::int32_t choose(std::span<const T> logits, const SamplingOptions& o, std::int64_t sequence,
                    std::int64_t position, const Seen& seen) {
  if (o.repetition_penalty == 1) return draw(logits, o, sequence, position);
  const std::vector<T> scores = penalised(logits, o.repetition_penalty, seen);
  return draw(std::span<const T>(scores), o, sequence, position);
}

}  // namespace

void check(const SamplingOptions& o) {
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature)) {
    throw ConfigError(
        fmt::format("--temperature {}: must be 0 (the most likely token) or positive", o.temperature));
  }
  if (o.top_k < 0) throw ConfigError(fmt::format("--top-k {}: must be 0 (all) or positive", o.top_k));
  if (!(o.top_p > 0) || o.top_p > 1)
    throw ConfigError(fmt::format("--top-p {}: must be above 0 and at most 1", o.top_p));
  if (!(o.min_p >= 0) || o.min_p > 1)
    throw ConfigError(fmt::format("--min-p {}: must be at least 0 (all) and at most 1", o.min_p));
  if (!(o.repetition_penalty > 0) || !std::isfinite(o.repetition_penalty)) {
    throw ConfigError(
        fmt::format("--repetition-penalty {}: must be above 0; 1 is none", o.repetition_penalty));
  }
}

std::int32_t sample(std::span<const float> logits, const SamplingOptions& o, std::int64_t sequence,
                    std::int64_t position, const Seen& seen) {
  return choose(logits, o, sequence, position, seen);
}
std::int32_t sample(std::span<const double> logits, const SamplingOptions& o, std::int64_t sequence,
                    std::int64_t position, const Seen& seen) {
  return choose(logits, o, sequence, position, seen);
}

}  // namespace mantissa::rollout
