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

std::int32_t most_likely(std::span<const double> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
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
}

std::int32_t sample(std::span<const double> logits, const SamplingOptions& o, std::int64_t sequence,
                    std::int64_t position) {
  if (o.temperature == 0) return most_likely(logits);
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto more_likely = [&](std::int32_t a, std::int32_t b) {
    const double x = logits[static_cast<std::size_t>(a)];
    const double y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::sort(order.begin(), order.end(), more_likely);
  if (o.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(o.top_k)));
  const double max = logits[static_cast<std::size_t>(order.front())];
  std::vector<double> p(order.size());
  double total = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    p[i] = std::exp((logits[static_cast<std::size_t>(order[i])] - max) / o.temperature);
    total += p[i];
  }
  // The nucleus: the first that together hold top_p.
  double kept = 0;
  std::size_t count = 0;
  while (count < p.size() && (count == 0 || kept < o.top_p * total)) kept += p[count++];
  const RandomStream stream(o.seed, RandomUse::sampling, static_cast<std::uint64_t>(sequence), 0);
  const double u = uniform(stream, static_cast<std::uint64_t>(position)) * kept;
  double below = 0;
  for (std::size_t i = 0; i < count; ++i) {
    below += p[i];
    if (u < below) return order[i];
  }
  return order[count - 1];
}

}  // namespace mantissa::rollout
