// Reinforcement learning as the task of a trainer: rollouts with the weights in training, rewards by a rule,
// advantages, and optimizer steps on the responses.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/prompt_rows.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/reward/rule.h"
#include "mantissa/train/steps/task.h"

namespace mantissa::rl {

/// A response for people: what the run writes to samples.jsonl.
struct Sampled {
  std::string where, prompt, response;
  double reward = 0;
  std::vector<std::pair<std::string, double>> parts;
  std::optional<bool> right = {};  // null if the rule does not say
  std::int64_t people = 0;         // that the question is about; 0: the row does not say
  std::int64_t tokens = 0;
  bool truncated = false;  // at rl.max_new_tokens
};
/// Called after each rollout with the number of the optimizer step that it precedes, from 1.
using OnRollout = std::function<void(std::int64_t step, std::span<const Sampled> samples)>;

/// Makes the rule that scores responses in place of rl.reward; null: that one.
using MakeRule = std::function<std::unique_ptr<reward::Rule>()>;

/// A config with its prompts. A data.sequence_length of 0 has become the length of the longest prompt and its
/// response.
struct Prepared {
  config::RunConfig config;
  std::shared_ptr<const data::PromptSet> prompts;
  std::vector<std::string> notes;
};

/// Throws ConfigError if the config names a program to run, which may come from somebody else, and the
/// command line does not allow it (RunConfig::allow_programs).
void check_allowed(const config::RunConfig& config);

/// Reads the prompts of `config`. Throws as data::PromptSet does, and for rows that the reward rule cannot
/// score.
Prepared prepare(config::RunConfig config, const model::ModelConfig& model, const MakeRule& make_rule = {});

/// Returns the task of rl with the prompts of the config. Throws ConfigError for a reference, a reward rule,
/// a rollout precision or prompts that do not fit the run.
std::unique_ptr<train::Task> task(const config::RunConfig& config, const weights::ModelSource& source,
                                  std::shared_ptr<const data::PromptSet> prompts, OnRollout on_rollout,
                                  const runtime::Device& device, MakeRule make_rule = {});

}  // namespace mantissa::rl
