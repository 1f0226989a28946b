// What the rewards of a rollout say about it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/generate/rollout/generate.h"
#include "mantissa/setup/objective/objective.h"
#include "mantissa/setup/objective/settings.h"
#include "mantissa/train/rl/experience.h"
#include "mantissa/train/rl/task.h"

namespace mantissa::rl {

/// Returns the means of the rewards and of their parts, the share of right answers, also by the number of
/// people in the question, the lengths of the responses, the share that is truncated, the standard deviation
/// of the rewards, and the number of prompts. `per_prompt` responses belong to each of them.
std::vector<objective::Metric> metrics_of(std::span<const Sampled> samples, std::int64_t per_prompt);

/// Returns the share of prompts whose `samples` responses, one after the other, all have the same reward:
/// they teach nothing where the samples of a prompt are compared.
double equal_reward_share(std::span<const Sampled> responses, std::int64_t samples);

/// Returns the mean entropy of the tokens' distributions.
double mean_entropy(std::span<const rollout::Generation> generations);

/// Returns the mean of `estimator` over the tokens: the divergence of the model that sampled from the
/// reference.
double mean_kl(const Experience& experience, objective::Kl estimator);

/// Returns how far the policy that sampled is from the one in training: the mean of k3 over the tokens, the
/// range of the ratios of token probabilities, and the effective sample size of the responses as a share of
/// their number.
std::vector<objective::Metric> mismatch(const Experience& experience);

}  // namespace mantissa::rl
