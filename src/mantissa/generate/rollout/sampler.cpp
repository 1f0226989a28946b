#include "mantissa/generate/rollout/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/philox.h"

namespace mantissa::rollout {
namespace {

/// Returns the index of the first of the largest logits, as std::max_element does. Searches only blocks that
/// contain a larger one than those before, because comparing a block takes less time than finding its
/// largest.
template <class T>
std::size_t largest(std::span<const T> logits) {
  constexpr std::size_t kBlock = 256;
  std::size_t best = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::span<const T> block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    const T limit = logits[best];
    unsigned larger = 0;  // without a branch, so that the compiler compares several at once
    for (const T logit : block) larger |= static_cast<unsigned>(limit < logit);
    if (larger == 0) continue;
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (logits[best] < block[i]) best = begin + i;
    }
  }
  return best;
}

template <class T>
std::int32_t most_likely(std::span<const T> logits) {
  return static_cast<std::int32_t>(largest(logits));
}

/// The ids by decreasing logit, equal ones by increasing id. Sorts only those above a limit, which decreases
/// until as many ids are sorted as are asked for: a text's next token usually has few candidates.
template <class T>
class Ranking {
 public:
  /// The first limit is `margin` below the largest logit.
  Ranking(std::span<const T> logits, double margin)
      : logits_(logits), max_(logits[largest(logits)]), margin_(margin) {}

  T max() const { return max_; }
  /// Returns the id with rank `i`, from 0.
  std::int32_t operator[](std::size_t i) {
    while (order_.size() <= i) sort_more();
    return order_[i];
  }
  T logit(std::size_t i) { return logits_[static_cast<std::size_t>((*this)[i])]; }

 private:
  void sort_more() {
    const double above = limit_;
    limit_ = static_cast<double>(max_) - margin_;
    margin_ *= 2;
    const std::size_t sorted = order_.size();
    for (std::size_t id = 0; id < logits_.size(); ++id) {
      const auto logit = static_cast<double>(logits_[id]);
      if (logit >= limit_ && logit < above) order_.push_back(static_cast<std::int32_t>(id));
    }
    std::ranges::stable_sort(order_.begin() + static_cast<std::ptrdiff_t>(sorted), order_.end(), {},
                             [&](std::int32_t id) { return -logits_[static_cast<std::size_t>(id)]; });
  }

  std::span<const T> logits_;
  T max_;
  double margin_;
  double limit_ = std::numeric_limits<double>::infinity();  // of the sorted ids
  std::vector<std::int32_t> order_;                         // the sorted ids
};

template <class T>
std::int32_t draw(std::span<const T> logits, const SamplingOptions& o, std::int64_t sequence,
                  std::int64_t position) {
  if (o.temperature == 0) return most_likely(logits);
  const std::size_t candidates =
      o.top_k > 0 ? std::min(logits.size(), static_cast<std::size_t>(o.top_k)) : logits.size();
  Ranking<T> ranked(logits, 4 * o.temperature);  // ids with at least e⁻⁴ of the largest probability
  const auto max = static_cast<double>(ranked.max());
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
std::vector<T> penalized(std::span<const T> logits, double penalty, const Seen& seen) {
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
std::vector<double> scores(std::span<const T> logits, const SamplingOptions& o, const Seen& seen) {
  if (o.repetition_penalty == 1) return {logits.begin(), logits.end()};
  const std::vector<T> all = penalized(logits, o.repetition_penalty, seen);
  return {all.begin(), all.end()};
}

template <class T>
std::int32_t choose(std::span<const T> logits, const SamplingOptions& o, std::int64_t sequence,
                    std::int64_t position, const Seen& seen) {
  if (o.repetition_penalty == 1) return draw(logits, o, sequence, position);
  const std::vector<T> scores = penalized(logits, o.repetition_penalty, seen);
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

std::vector<double> scores_of(std::span<const float> logits, const SamplingOptions& o, const Seen& seen) {
  return scores(logits, o, seen);
}
std::vector<double> scores_of(std::span<const double> logits, const SamplingOptions& o, const Seen& seen) {
  return scores(logits, o, seen);
}

std::int32_t sample_scores(std::span<const double> scores, SamplingOptions o, std::int64_t sequence,
                           std::int64_t position) {
  constexpr double kExcluded = -std::numeric_limits<double>::infinity();
  const bool valid = std::ranges::all_of(scores, [](double s) { return std::isfinite(s) || s == kExcluded; });
  const auto allowed = std::ranges::count_if(scores, [](double s) { return s != kExcluded; });
  if (!valid || allowed == 0) {
    throw ConfigError(fmt::format(
        "the logits processor left {} at position {}. Fix: return finite numbers, and -inf for the tokens to exclude",
        valid ? "no token" : "a logit that is NaN or +inf", position));
  }
  // Candidates beyond the allowed ones have no probability, and no rank.
  if (allowed < std::ssize(scores))
    o.top_k = o.top_k > 0 ? std::min<std::int64_t>(o.top_k, allowed) : allowed;
  return draw(scores, o, sequence, position);
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
