// From the ids that a model has sampled to scored responses.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "mantissa/generate/rollout/generate.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/prompt_rows.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/reward/rule.h"
#include "mantissa/train/rl/task.h"

namespace mantissa::rl {

/// Returns the ids that end a response.
std::vector<std::int32_t> response_ends(const config::RunConfig& config, const weights::ModelSource& source,
                                        const data::PromptSet& prompts);

/// Returns the samples, `per_prompt` responses of `made` to each of `prompts`, with their scores by `rule`.
/// A response that ends neither with one of `ends` nor with a text that ends a turn is truncated. Null if a
/// stop came first. Throws as reward::Rule::score() does.
std::optional<std::vector<Sampled>> score_responses(const data::PromptSet& set,
                                                    std::span<const data::Prompt> prompts,
                                                    std::int64_t per_prompt,
                                                    std::span<const rollout::Generation> made,
                                                    std::span<const std::int32_t> ends, reward::Rule& rule,
                                                    const std::stop_token& stop);

}  // namespace mantissa::rl
