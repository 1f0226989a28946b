#include "mantissa/generate/rollout/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/philox.h"

namespace mantissa::rollout {
namespace {

const std::vector<double> kLogits = {1.5, -0.5, 3.0, 2.9, -4.0, 0.25, 2.0, -1.0};

/// Returns the ids that are drawn at all.
std::set<std::int32_t> drawn(const SamplingOptions& o, const Seen& seen = {}) {
  std::set<std::int32_t> ids;
  for (std::int64_t position = 0; position < 4000; ++position)
    ids.insert(sample(std::span(kLogits), o, 0, position, seen));
  return ids;
}

/// Returns the ids whose probability is at least `share` of the largest one.
std::set<std::int32_t> at_least(double share, double temperature) {
  std::set<std::int32_t> ids;
  for (std::size_t i = 0; i < kLogits.size(); ++i) {
    if (std::exp((kLogits[i] - 3.0) / temperature) >= share) ids.insert(static_cast<std::int32_t>(i));
  }
  return ids;
}

TEST(Sampler, MinPKeepsTokensWithAShareOfTheLargestProbability) {
  for (const double temperature : {0.7, 1.0, 2.0}) {
    for (const double share : {0.05, 0.3, 0.95}) {
      EXPECT_EQ(drawn({.temperature = temperature, .min_p = share}), at_least(share, temperature))
          << temperature << ", " << share;
    }
  }
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 1}), std::set<std::int32_t>{2});
}

TEST(Sampler, MinPFollowsTopKAndTopP) {
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 3, .min_p = 0.01}), (std::set<std::int32_t>{2, 3, 6}));
  // The two most likely ids have 0.387 and 0.350 of the probability: 0.5 needs both.
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.5, .min_p = 0.01}), (std::set<std::int32_t>{2, 3}));
}

TEST(Sampler, TheRepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
  const std::vector<std::int32_t> prompt = {2, 2}, generated = {3};
  const auto greedy = [&](double penalty, const Seen& seen) {
    return sample(std::span(kLogits), {.temperature = 0, .repetition_penalty = penalty}, 0, 0, seen);
  };
  EXPECT_EQ(greedy(1.5, {}), 2);
  EXPECT_EQ(greedy(1.01, {prompt, {}}), 2) << "3 / 1.01 is above 2.9; a repeated id counts once";
  EXPECT_EQ(greedy(1.1, {prompt, {}}), 3);
  EXPECT_EQ(greedy(1.6, {prompt, generated}), 6);
  const std::vector<double> negative = {-1.0, -1.2};
  const std::vector<std::int32_t> first = {0};
  EXPECT_EQ(sample(std::span(negative), {.temperature = 0, .repetition_penalty = 1.3}, 0, 0, {first, {}}), 1);
}

TEST(Sampler, FiltersChangeNoProbabilityAmongTheRest) {
  // Among ids 2, 3 and 6 the shares are those of e^logit.
  std::map<std::int32_t, int> counts;
  constexpr int kDraws = 20'000;
  for (std::int64_t p = 0; p < kDraws; ++p)
    ++counts[sample(std::span(kLogits), {.temperature = 1, .min_p = 0.3}, 0, p)];
  const double total = std::exp(3.0) + std::exp(2.9) + std::exp(2.0);
  for (const std::int32_t id : {2, 3, 6}) {
    const double share = std::exp(kLogits[static_cast<std::size_t>(id)]) / total;
    // Six standard deviations of a count.
    EXPECT_NEAR(counts[id], kDraws * share, 6 * std::sqrt(kDraws * share * (1 - share))) << id;
  }
}

TEST(Sampler, DrawsFromALargeVocabularyAreThoseOfAWholeSort) {
  constexpr std::size_t kIds = 30'000;
  std::vector<float> logits(kIds);
  for (std::size_t i = 0; i < kIds; ++i)
    logits[i] = static_cast<float>((i * 7919) % 601) / 200;  // many equal ones, and a flat distribution
  std::vector<std::size_t> order(kIds);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  for (const double temperature : {0.05, 0.3, 1.0, 5.0}) {
    double total = 0;
    for (const std::size_t id : order) total += std::exp((static_cast<double>(logits[id]) - 3) / temperature);
    for (std::int64_t position = 0; position < 50; ++position) {
      const RandomStream stream(1, RandomUse::sampling, 0, 0);
      const double u = uniform(stream, static_cast<std::uint64_t>(position)) * total;
      double below = 0;
      std::size_t rank = 0;
      for (; rank + 1 < kIds; ++rank) {
        below += std::exp((static_cast<double>(logits[order[rank]]) - 3) / temperature);
        if (u < below) break;
      }
      EXPECT_EQ(sample(std::span<const float>(logits), {.temperature = temperature}, 0, position),
                static_cast<std::int32_t>(order[rank]));
    }
  }
}

TEST(Sampler, ValuesOutOfRangeAreRefused) {
  EXPECT_NO_THROW(check({.temperature = 1, .min_p = 1, .repetition_penalty = 0.5}));
  for (const SamplingOptions& o : {SamplingOptions{.min_p = -0.1},
                                   {.min_p = 1.1},
                                   {.min_p = std::nan("")},
                                   {.repetition_penalty = 0},
                                   {.repetition_penalty = -1},
                                   {.repetition_penalty = HUGE_VAL}})
    EXPECT_THROW(check(o), ConfigError);
}

}  // namespace
}  // namespace mantissa::rollout
