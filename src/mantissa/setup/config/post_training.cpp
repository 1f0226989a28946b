#include "mantissa/setup/config/post_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"
#include "mantissa/setup/config/read.h"
#include "mantissa/text/reward/rule.h"

namespace mantissa::config {
namespace {

struct Owner {
  std::string_view section, objective;
};
constexpr std::array kOwners = {Owner{"dpo", "dpo"}, Owner{"kto", "kto"}, Owner{"rl", "rl"}};

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

/// Refuses keys that the loss does not read.
void check_dpo(const DpoSection& dpo, const Entries& entries) {
  const auto only_for = [&](bool set, const char* key, std::initializer_list<std::string_view> losses) {
    if (!set || std::ranges::find(losses, dpo.loss) != losses.end()) return;
    refuse(*entries.find("dpo", key), fmt::format("dpo.loss = \"{}\" does not read it, only {}; remove it",
                                                  dpo.loss, fmt::join(losses, " and ")));
  };
  only_for(dpo.label_smoothing != 0, "label_smoothing", {"sigmoid", "simpo"});
  only_for(dpo.gamma != 0, "gamma", {"simpo"});
  only_for(!dpo.reference.empty(), "reference", {"sigmoid", "ipo"});
  if (dpo.loss == "orpo" && dpo.nll_coef != 0)
    refuse(*entries.find("dpo", "nll_coef"),
           "the loss of orpo contains the log-likelihood already; remove it");
}

void check_kto(const RunConfig& config, const Entries& entries) {
  if (config.train.objective != "kto") return;
  const KtoSection& kto = config.kto;
  if (kto.desirable_weight == 0 && kto.undesirable_weight == 0) {
    refuse(*entries.find("kto", "desirable_weight"),
           "undesirable_weight is 0 too, so that nothing is trained; set one of them above 0");
  }
  const Entry* batch = entries.find("batch", "global_batch_size");
  if (kto.loss == "kto" && config.batch.global_batch_size < 2 && batch != nullptr) {
    refuse(*batch,
           "kto compares each prompt with the answer of another row of the step; write at least 2, or set "
           "kto.loss = \"apo-zero\"");
  }
}

void check_clip(const RlSection& rl, const Entries& entries) {
  if (rl.dual_clip != 0 && rl.dual_clip <= 1)
    refuse(*entries.find("rl", "dual_clip"), "must be above 1, or 0 for none");
}

void check_reward_model(const RlSection& rl, const Entries& entries) {
  if (reward::is_model(rl.reward)) {
    if (rl.reward_model.empty()) {
      refuse(*entries.find("rl", "reward"),
             "needs the reward model; set rl.reward_model to its directory, or to the run that trained it");
    }
    return;
  }
  for (const auto& [key, value] :
       {std::pair("reward_model", &rl.reward_model), {"reward_precision", &rl.reward_precision}}) {
    if (value->empty()) continue;
    refuse(*entries.find("rl", key),
           fmt::format("only reward = \"model\" reads it, and rl.reward is {}; set that, or remove the key",
                       in_quotes(rl.reward)));
  }
}

void check_rl(const RunConfig& config, const Entries& entries) {
  const RlSection& rl = config.rl;
  const bool group = rl.algorithm == "grpo" || rl.algorithm == "dr-grpo" || rl.algorithm == "rloo" ||
                     rl.algorithm == "reinforce++-baseline";
  if (group && rl.samples_per_prompt < 2) {
    refuse(*entries.find("rl", "samples_per_prompt"),
           fmt::format("{} compares the samples of a prompt; write at least 2", rl.algorithm));
  }
  for (const auto& [key, policy] :
       {std::pair("rollout_precision", &rl.rollout_precision), {"reward_precision", &rl.reward_precision}}) {
    if (policy->empty()) continue;
    try {
      precision::Policy::parse(*policy);
    } catch (const ConfigError& e) {
      refuse(*entries.find("rl", key), e.what());
    }
  }
  try {
    reward::check_rule(rl.reward);
  } catch (const ConfigError& e) {
    refuse(*entries.find("rl", "reward"), e.what());
  }
  check_reward_model(rl, entries);
  check_clip(rl, entries);
  if (!config.run.stages.empty())
    refuse(*first_entry(entries, "run"),
           "stages are for train.objective = \"pretrain\"; remove them, or set the objective");
}

}  // namespace

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
  check_dpo(config.dpo, entries);
  if (config.train.objective != "rl") config.rl = {};
  if (config.train.objective != "kto") config.kto = {};
  check_kto(config, entries);
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
  check_dpo(config.dpo, entries);
}

std::int64_t rows_per_item(const RunConfig& config) {
  return config.train.objective == "dpo" || config.train.objective == "reward" ? 2 : 1;
}

std::int64_t generated_row_count(const RunConfig& config) {
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
