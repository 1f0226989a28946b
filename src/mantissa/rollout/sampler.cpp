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

/// The ids by decreasing logit, equal ones by increasing id. Sorts only as many as are asked for.
template <class T>
class Ranking {
 public:
  explicit Ranking(std::span<const T> logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  /// Returns the id with rank `i`, from 0.
  std::int32_t operator[](std::size_t i) {
    while (sorted_ <= i) sort_more();
    return order_[i];
  }
  T logit(std::size_t i) { return logits_[static_cast<std::size_t>((*this)[i])]; }

 private:
  void sort_more() {
    constexpr std::size_t kFirst = 64, kMostOfAHeap = 4096;
    const std::size_t end = std::min(order_.size(), sorted_ == 0 ? kFirst : 4 * sorted_);
    const auto at = [&](std::size_t i) { return order_.begin() + static_cast<std::ptrdiff_t>(i); };
    const auto more_likely = [&](std::int32_t a, std::int32_t b) {
      const T x = logits_[static_cast<std::size_t>(a)], y = logits_[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    };
    if (end > kMostOfAHeap) {
      std::sort(at(sorted_), order_.end(), more_likely);
      sorted_ = order_.size();
    } else {
      std::partial_sort(at(sorted_), at(end), order_.end(), more_likely);
      sorted_ = end;
    }
  }

  std::span<const T> logits_;
  std::vector<std::int32_t> order_;
  std::size_t sorted_ = 0;
};

template <class T>
std::int32_t draw(std::span<const T> logits, const SamplingOptions& o, std::int64_t sequence,
                  std::int64_t position) {
  if (o.temperature == 0) return most_likely(logits);
  const std::size_t candidates =
      o.top_k > 0 ? std::min(logits.size(), static_cast<std::size_t>(o.top_k)) : logits.size();
  Ranking<T> ranked(logits);
  const double max = static_cast<double>(ranked.logit(0));
  const auto weight = [&](T logit) { return std::exp((static_cast<double>(logit) - max) / o.temperature); };
  double total = 0;
  if (candidates < logits.size()) {
    for (std::size_t i = 0; i < candidates; ++i) total += weight(ranked.logit(i));
  } else {
    for (const T logit : logits) total += weight(logit);
  }
  // The nucleus: the first ids whose probabilities sum to top_p, without those below min_p.
  double kept = total;
  std::size_t count = candidates;
  if (o.top_p < 1 || o.min_p > 0) {
    kept = weight(ranked.logit(0));
    for (count = 1; count < candidates && (o.top_p == 1 || kept < o.top_p * total); ++count) {
      const double p = weight(ranked.logit(count));
      if (p < o.min_p) break;
      kept += p;
    }
  }
  const RandomStream stream(o.seed, RandomUse::sampling, static_cast<std::uint64_t>(sequence), 0);
  const double u = uniform(stream, static_cast<std::uint64_t>(position)) * kept;
  double below = 0;
  for (std::size_t i = 0; i < count; ++i) {
    below += weight(ranked.logit(i));
    if (u < below) return ranked[i];
  }
  return ranked[count - 1];
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
