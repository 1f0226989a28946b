#include "mantissa/setup/config/post_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/config/read.h"
#include "mantissa/text/reward/rule.h"

namespace mantissa::config {
namespace {

constexpr double kMostRows = 16777216;  // 2^24: as for rows of a batch

struct Owner {
  std::string_view section, objective;
};
constexpr std::array kOwners = {Owner{"dpo", "dpo"}, Owner{"rl", "rl"}};

/// Returns the first given key of `section`, or null. An alias that was written elsewhere does not count.
const Entry* first_entry(const Entries& entries, std::string_view section) {
  for (const std::string& key : keys_of(section)) {
    if (const Entry* entry = entries.find(section, key); entry != nullptr && !entry->stray) return entry;
  }
  return nullptr;
}

/// Warns of a section that the objective does not use. A config may be that of another run, changed.
void check_owner(const RunConfig& config, const Entries& entries, const Owner& owner, Told& told) {
  if (config.train.objective == owner.objective) return;
  std::string_view last;  // an alias of several keys has one warning
  for (const Entry& e : entries.all) {
    if (!e.stray || e.section != owner.section || e.alias == last) continue;
    last = e.alias;
    told.warnings.push_back(
        fmt::format("{}: {} ({}.{}) has no effect: train.objective is \"{}\". Fix: set train.objective = "
                    "\"{}\", or remove the key",
                    e.origin, e.alias, e.section, e.key, config.train.objective, owner.objective));
  }
  const Entry* entry = first_entry(entries, owner.section);
  if (entry == nullptr) return;
  told.warnings.push_back(
      fmt::format("{}: [{}] has no effect: train.objective is \"{}\". Fix: set train.objective = \"{}\", or "
                  "remove the section",
                  entry->origin, owner.section, config.train.objective, owner.objective));
}

/// Sets rl.prompts_per_step to the sequences of a DeepSpeed file's optimizer step.
void set_prompts(RunConfig& config, const Entry& batch) {
  RlSection& rl = config.rl;
  const std::int64_t sequences = config.batch.global_batch_size * rl.minibatches;
  if (sequences % rl.samples_per_prompt != 0) {
    throw ConfigError(
        fmt::format("{}: expected a multiple of rl.samples_per_prompt, {}, of sequences in a rollout, got "
                    "{}{}. Fix: change one of them, or remove the key and set rl.prompts_per_step",
                    batch.where, rl.samples_per_prompt, config.batch.global_batch_size,
                    rl.minibatches == 1 ? "" : fmt::format(" × {} (rl.minibatches)", rl.minibatches)));
  }
  rl.prompts_per_step = sequences / rl.samples_per_prompt;
}

void settle_rl_batch(RunConfig& config, const Entries& entries) {
  const RlSection& rl = config.rl;
  const std::int64_t samples = rl.prompts_per_step * rl.samples_per_prompt;
  if (samples % rl.minibatches != 0) {
    refuse(
        *entries.find("rl", "minibatches"),
        fmt::format("must divide the {} samples of a rollout (rl.prompts_per_step × rl.samples_per_prompt)",
                    samples));
  }
  const std::int64_t rows = samples / rl.minibatches;
  const Entry* entry = entries.find("batch", "global_batch_size");
  if (entry != nullptr && !entry->deepspeed && config.batch.global_batch_size != rows) {
    refuse(*entry,
           fmt::format("an optimizer step of rl trains on rl.prompts_per_step × rl.samples_per_prompt "
                       "/ rl.minibatches = {} sequences; remove the key, or write {}",
                       rows, rows));
  }
  config.batch.global_batch_size = rows;
}

void check_clip(const RlSection& rl, const Entries& entries) {
  if (rl.dual_clip != 0 && rl.dual_clip <= 1)
    refuse(*entries.find("rl", "dual_clip"), "must be above 1, or 0 for none");
}

void check_rl(const RunConfig& config, const Entries& entries) {
  const RlSection& rl = config.rl;
  const bool group = rl.algorithm == "grpo" || rl.algorithm == "dr-grpo" || rl.algorithm == "rloo" ||
                     rl.algorithm == "reinforce++-baseline";
  if (group && rl.samples_per_prompt < 2) {
    refuse(*entries.find("rl", "samples_per_prompt"),
           fmt::format("{} compares the samples of a prompt; write at least 2", rl.algorithm));
  }
  if (!rl.rollout_precision.empty()) {
    try {
      precision::Policy::parse(rl.rollout_precision);
    } catch (const ConfigError& e) {
      refuse(*entries.find("rl", "rollout_precision"), e.what());
    }
  }
  try {
    reward::check_rule(rl.reward);
  } catch (const ConfigError& e) {
    refuse(*entries.find("rl", "reward"), e.what());
  }
  check_clip(rl, entries);
  if (!config.run.stages.empty())
    refuse(*first_entry(entries, "run"), "stages are for train.objective = \"pretrain\"");
}

}  // namespace

std::vector<Option> post_training_options() {
  constexpr double kWhole = 9007199254740992;
  return {
      {"dpo",
       "beta",
       [](RunConfig& c) -> Slot { return &c.dpo.beta; },
       "strength of the tie to the reference model",
       {.min = 0, .above = true}},
      {"dpo",
       "label_smoothing",
       [](RunConfig& c) -> Slot { return &c.dpo.label_smoothing; },
       "assumed share of pairs in the wrong order (cDPO); only for the sigmoid loss",
       {.min = 0, .max = 0.5}},
      {"dpo",
       "loss",
       [](RunConfig& c) -> Slot { return &c.dpo.loss; },
       "sigmoid (DPO), or ipo",
       {},
       {"sigmoid", "ipo"}},
      {"dpo",
       "nll_coef",
       [](RunConfig& c) -> Slot { return &c.dpo.nll_coef; },
       "share of the negative log-likelihood of the chosen answers in the loss",
       {.min = 0}},
      {"dpo",
       "reference",
       [](RunConfig& c) -> Slot { return &c.dpo.reference; },
       "model directory of the reference; empty: the starting weights",
       {},
       {},
       {},
       true},

      {"rl",
       "algorithm",
       [](RunConfig& c) -> Slot { return &c.rl.algorithm; },
       "estimator of the advantages",
       {},
       {"grpo", "dr-grpo", "ppo", "reinforce++", "reinforce++-baseline", "rloo"}},
      {"rl", "reward", [](RunConfig& c) -> Slot { return &c.rl.reward; },
       "kk (Knights and Knaves), exact, \"regex:PATTERN\", or \"program:COMMAND\""},
      {"rl",
       "prompts_per_step",
       [](RunConfig& c) -> Slot { return &c.rl.prompts_per_step; },
       "prompts of a rollout",
       {.min = 1, .max = kMostRows}},
      {"rl",
       "samples_per_prompt",
       [](RunConfig& c) -> Slot { return &c.rl.samples_per_prompt; },
       "responses to each prompt",
       {.min = 1, .max = kMostRows}},
      {"rl",
       "epochs",
       [](RunConfig& c) -> Slot { return &c.rl.epochs; },
       "passes over the responses of a rollout",
       {.min = 1, .max = kMostRows}},
      {"rl",
       "minibatches",
       [](RunConfig& c) -> Slot { return &c.rl.minibatches; },
       "optimizer steps of a pass; a rollout serves epochs × minibatches steps",
       {.min = 1, .max = kMostRows}},
      {"rl",
       "temperature",
       [](RunConfig& c) -> Slot { return &c.rl.temperature; },
       "temperature of the sampling",
       {.min = 0, .above = true}},
      {"rl",
       "top_p",
       [](RunConfig& c) -> Slot { return &c.rl.top_p; },
       "probability of the most likely tokens among which responses are sampled",
       {.min = 0, .max = 1, .above = true}},
      {"rl",
       "max_new_tokens",
       [](RunConfig& c) -> Slot { return &c.rl.max_new_tokens; },
       "longest response",
       {.min = 1, .max = kMostRows}},
      {"rl",
       "clip_low",
       [](RunConfig& c) -> Slot { return &c.rl.clip_low; },
       "the ratio is clipped below 1 − clip_low",
       {.min = 0, .max = 1}},
      {"rl",
       "clip_high",
       [](RunConfig& c) -> Slot { return &c.rl.clip_high; },
       "the ratio is clipped above 1 + clip_high",
       {.min = 0}},
      {"rl",
       "dual_clip",
       [](RunConfig& c) -> Slot { return &c.rl.dual_clip; },
       "bound of the loss of tokens with a negative advantage, as a factor above 1; 0: none",
       {.min = 0}},
      {"rl",
       "gamma",
       [](RunConfig& c) -> Slot { return &c.rl.gamma; },
       "discount of later rewards, in ppo and reinforce++",
       {.min = 0, .max = 1}},
      {"rl",
       "lambda",
       [](RunConfig& c) -> Slot { return &c.rl.lambda; },
       "λ of generalized advantage estimation, in ppo",
       {.min = 0, .max = 1}},
      {"rl",
       "whiten",
       [](RunConfig& c) -> Slot { return &c.rl.whiten; },
       "advantages are whitened over the tokens of a rollout; auto: in ppo, reinforce++ and "
       "reinforce++-baseline",
       {},
       {"auto", "batch", "none"}},
      {"rl",
       "value_clip",
       [](RunConfig& c) -> Slot { return &c.rl.value_clip; },
       "largest change of a value that lowers its loss, in ppo; 0: none",
       {.min = 0}},
      {"rl",
       "value_coef",
       [](RunConfig& c) -> Slot { return &c.rl.value_coef; },
       "share of the value loss, in ppo",
       {.min = 0}},
      {"rl",
       "entropy_coef",
       [](RunConfig& c) -> Slot { return &c.rl.entropy_coef; },
       "share of the mean entropy that the loss subtracts",
       {.min = 0}},
      {"rl",
       "kl",
       [](RunConfig& c) -> Slot { return &c.rl.kl; },
       "estimator of the divergence from the reference",
       {},
       {"none", "k1", "k2", "k3"}},
      {"rl",
       "kl_in",
       [](RunConfig& c) -> Slot { return &c.rl.kl_in; },
       "the divergence is a part of the loss, or of the reward",
       {},
       {"loss", "reward"}},
      {"rl", "kl_coef", [](RunConfig& c) -> Slot { return &c.rl.kl_coef; }, "its coefficient", {.min = 0}},
      {"rl",
       "loss_mean",
       [](RunConfig& c) -> Slot { return &c.rl.loss_mean; },
       "mean over the tokens of the batch, mean over sequences of their means, or sum / (rows · "
       "max_new_tokens)",
       {},
       {"token", "sequence", "constant"}},
      {"rl",
       "importance",
       [](RunConfig& c) -> Slot { return &c.rl.importance; },
       "importance weights of samples of another policy (importance_cap): of each token, or of sequences",
       {},
       {"token", "sequence"}},
      {"rl",
       "importance_cap",
       [](RunConfig& c) -> Slot { return &c.rl.importance_cap; },
       "largest importance weight; 0: no weights",
       {.min = 0}},
      {"rl", "rollout_precision", [](RunConfig& c) -> Slot { return &c.rl.rollout_precision; },
       "another policy for sampling; empty: that of training, which gives equal log-probabilities"},
      {"rl",
       "reference",
       [](RunConfig& c) -> Slot { return &c.rl.reference; },
       "model directory of the reference, or none; empty: the starting weights",
       {},
       {"none"},
       {},
       true},
      {"rl",
       "reward_timeout",
       [](RunConfig& c) -> Slot { return &c.rl.reward_timeout; },
       "seconds that a reward program may take for the samples of a rollout",
       {.min = 0, .max = kWhole, .above = true}},
  };
}

bool prints_section(const RunConfig& config, std::string_view section) {
  for (const Owner& owner : kOwners) {
    if (owner.section == section) return config.train.objective == owner.objective;
  }
  return true;
}

const Entry* deepspeed_prompts(const RunConfig& config, const Entries& entries) {
  const Entry* batch = entries.find("batch", "global_batch_size");
  if (config.train.objective != "rl" || batch == nullptr || !batch->deepspeed) return nullptr;
  // A micro-batch alone is also the batch of pretraining, but not the rollout of rl.
  if (batch->where.ends_with("(train_micro_batch_size_per_gpu)")) return nullptr;
  const Entry* prompts = entries.find("rl", "prompts_per_step");
  return prompts != nullptr && !prompts->raw.empty() ? nullptr : batch;  // --set takes precedence
}

void settle_post_training(RunConfig& config, const Entries& entries, Told& told) {
  // The batch of rl follows from its prompts, so a config with a batch is of another objective.
  const Entry* batch = entries.find("batch", "global_batch_size");
  const bool left_over = entries.of_train && batch != nullptr && !batch->deepspeed;
  if (entries.find("train", "objective") == nullptr && first_entry(entries, "rl") != nullptr && !left_over)
    config.train.objective = "rl";
  for (const Owner& owner : kOwners) check_owner(config, entries, owner, told);
  if (config.train.objective != "dpo") config.dpo = {};
  if (config.train.objective != "rl") config.rl = {};
  if (config.train.objective != "rl") {
    if (config.data.sequence_length == 0)
      refuse(*entries.find("data", "sequence_length"), "must be at least 1 and at most 16777216");
    return;
  }
  check_rl(config, entries);
  if (const Entry* batch = deepspeed_prompts(config, entries)) set_prompts(config, *batch);
  // Until the prompts are read.
  if (entries.find("data", "sequence_length") == nullptr) config.data.sequence_length = 0;
  settle_rl_batch(config, entries);
}

void override_section(RunConfig& config, std::string_view command, std::string_view section,
                      std::span<const std::string> overrides) {
  const Entries entries = read_entries("", "--set", overrides);
  for (const Entry& entry : entries.all) {
    if (entry.section == section) continue;
    refuse(entry, section.empty() ? fmt::format("{} has no keys; remove it", command)
                                  : fmt::format("{} uses only the keys of [{}]", command, section));
  }
  set_options(config, entries);
  check_clip(config.rl, entries);
}

std::int64_t rows_per_item(const RunConfig& config) {
  return config.train.objective == "dpo" || config.train.objective == "reward" ? 2 : 1;
}

std::int64_t training_puzzle_count(const RunConfig& config) {
  constexpr double kMost = 65536;  // beyond as many, training repeats them
  const double rollouts =
      std::ceil(static_cast<double>(config.run.steps) / static_cast<double>(steps_per_rollout(config.rl)));
  const double prompts = rollouts * static_cast<double>(config.rl.prompts_per_step);
  return static_cast<std::int64_t>(std::clamp(prompts, 1.0, kMost));
}

std::int64_t steps_per_rollout(const RlSection& rl) {
  return rl.epochs * rl.minibatches;
}

}  // namespace mantissa::config
