#include "mantissa/train/steps/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/setup/config/post_training.h"
#include "mantissa/text/rows/dataset.h"
#include "mantissa/text/rows/generated_rows.h"

namespace mantissa::train {
namespace {

enum class Change { refused, recorded, unimportant };

Change kind_of(const config::Option& option) {
  const std::string key = fmt::format("{}.{}", option.section, option.key);
  static constexpr std::array kUnimportant = {"run.name",
                                              "run.out",
                                              "run.threads",
                                              "batch.micro_batch_size",
                                              "batch.recompute",
                                              "batch.chunk_tokens",
                                              "precision.native_only"};
  if (std::find(kUnimportant.begin(), kUnimportant.end(), key) != kUnimportant.end())
    return Change::unimportant;
  // The model is compared separately.
  if (key == "distributed.sequence_shards") return Change::refused;  // other bits, like batch.shards
  if (option.section == "model" || option.section == "distributed") return Change::unimportant;
  static constexpr std::array kRefused = {"run.seed", "optimizer.name", "dpo.reference"};
  if (std::find(kRefused.begin(), kRefused.end(), key) != kRefused.end()) return Change::refused;
  static constexpr std::array kRefusedSections = {"data", "batch", "train", "adapter"};
  return std::find(kRefusedSections.begin(), kRefusedSections.end(), option.section) != kRefusedSections.end()
             ? Change::refused
             : Change::recorded;
}

/// Returns true if every prompt of a run of rl is used whatever data.sequence_length is. The length then only
/// has room for the longest prompt, and by default it is measured: of a generator more steps have more
/// prompts.
bool has_all_prompts(const config::RunConfig& c) {
  return c.train.objective == "rl" && c.data.truncate == "refuse";
}

/// Returns the number of generated prompts that a run of rl holds out, before too long ones are skipped.
std::int64_t held_out_generated(const config::RunConfig& c) {
  if (c.train.objective != "rl" || !c.data.validation.files.empty()) return 0;
  return std::ranges::count_if(c.data.source, text::names_generator) *
         text::held_out_rows(config::generated_row_count(c), c.data.validation.share);
}

/// Describes another number of generated held-out prompts, which depends on the length of the run, or returns
/// "".
std::string changed_prompts(const config::RunConfig& before, const config::RunConfig& now) {
  const std::int64_t a = held_out_generated(before), b = held_out_generated(now);
  if (a == b) return "";
  const std::string_view of = now.data.source.size() > 1 ? " of kk" : "";
  if (!has_all_prompts(before) || !has_all_prompts(now)) return fmt::format("held-out prompts{} changed", of);
  return fmt::format(
      "held-out prompts{0} {1} -> {2} (the first {3} are the same; compare validations of {1} and of {2} "
      "separately)",
      of, a, b, std::min(a, b));
}

/// Returns the stages of a run; a run without [[run.stage]] is one.
std::vector<config::Stage> stages_of(const config::RunConfig& c) {
  if (!c.run.stages.empty()) return c.run.stages;
  return {{.steps = c.run.steps,
           .sequence_length = c.data.sequence_length,
           .global_batch_size = c.batch.global_batch_size,
           .micro_batch_size = c.batch.micro_batch_size,
           .lr = c.optimizer.lr,
           .warmup_steps = c.schedule.warmup_steps,
           .source = c.data.source}};
}

bool same_rows(const config::Stage& a, const config::Stage& b) {
  return a.sequence_length == b.sequence_length && a.global_batch_size == b.global_batch_size &&
         a.source == b.source;
}

/// Returns the changed stages. Throws ConfigError if one that has run, up to step `done`, had other rows or
/// ended at another step.
std::vector<std::string> changed_stages(const config::RunConfig& before, const config::RunConfig& now,
                                        std::int64_t done) {
  std::vector<std::string> changes;
  const std::vector<config::Stage> old_stages = stages_of(before), new_stages = stages_of(now);
  std::int64_t first = 0;
  for (std::size_t s = 0; s < std::max(old_stages.size(), new_stages.size()); ++s) {
    const config::Stage* a = s < old_stages.size() ? &old_stages[s] : nullptr;
    const config::Stage* b = s < new_stages.size() ? &new_stages[s] : nullptr;
    const bool ran = first < done && a != nullptr;
    const bool ended = ran && first + a->steps < done;
    const bool too_short = ran && !ended && b != nullptr && first + b->steps < done;
    if (ran && (b == nullptr || !same_rows(*a, *b) || (ended && a->steps != b->steps) || too_short)) {
      throw ConfigError(
          fmt::format("--resume: stage {} of the run has other steps, sequence_length, global_batch_size or "
                      "source in this config, and the state of step {} is in it or after it. Revert the "
                      "change, or start over with --overwrite or another --out",
                      s + 1, done));
    }
    config::Stage unchanged = a == nullptr ? config::Stage{} : *a;
    if (b != nullptr) unchanged.micro_batch_size = b->micro_batch_size;  // changes no bit
    if (a == nullptr || b == nullptr || unchanged != *b)
      changes.push_back(fmt::format("stage {} changed", s + 1));
    if (a != nullptr) first += a->steps;
  }
  return changes;
}

/// Throws ConfigError if two contents of config.json differ.
void check_model(const std::string& before, const std::string& now) {
  const nlohmann::json a = nlohmann::json::parse(before), b = nlohmann::json::parse(now);
  std::string fields;
  for (const nlohmann::json& step : nlohmann::json::diff(a, b)) {
    const nlohmann::json::json_pointer path(step["path"].get<std::string>());
    const auto shown = [&](const nlohmann::json& of) {
      return of.contains(path) ? of[path].dump() : "absent";
    };
    fields += fmt::format("{}{} {} -> {}", fields.empty() ? "" : ", ",
                          step["path"].get<std::string>().substr(1), shown(a), shown(b));
  }
  if (fields.empty()) return;
  throw ConfigError(fmt::format(
      "--resume: the config describes another model than that of the run ({}); resume with the run's own "
      "config.toml, or start over with --overwrite",
      fields));
}

}  // namespace

std::optional<std::string> resumed_change(const io::StateHeader& state, const config::RunConfig& config,
                                          const std::string& model) {
  config::RunConfig before = config::parse_config(state.config_toml, "state.json");
  config::RunConfig now = config;
  std::vector<std::string> changes;
  if (!before.run.stages.empty() || !now.run.stages.empty())
    changes = changed_stages(before, now, state.step);
  check_model(state.model_config, model);
  for (const config::Option& option : config::option_table()) {
    const bool room = option.section == "data" && option.key == "sequence_length" &&
                      has_all_prompts(before) && has_all_prompts(now);
    const Change kind = room ? Change::recorded : kind_of(option);
    const std::string old_value = config::toml_text(option.slot(before));
    const std::string new_value = config::toml_text(option.slot(now));
    if (kind == Change::unimportant || old_value == new_value) continue;
    if (kind == Change::refused) {
      throw ConfigError(
          fmt::format("--resume: {}.{} was {} and is {} now; the model, data, batch and seed of a run cannot "
                      "change. Revert the change, or start over with --overwrite or another --out",
                      option.section, option.key, old_value, new_value));
    }
    changes.push_back(fmt::format("{}.{} {} -> {}", option.section, option.key, old_value, new_value));
  }
  if (std::string prompts = changed_prompts(before, now); !prompts.empty())
    changes.push_back(std::move(prompts));
  if (before.optimizer.groups != now.optimizer.groups) changes.emplace_back("optimizer.group changed");
  if (before.policy != now.policy)
    changes.push_back(fmt::format("policy \"{}\" -> \"{}\"", before.policy.line(), now.policy.line()));
  if (changes.empty()) return std::nullopt;
  std::string text = fmt::format("step {}: ", state.step);
  for (std::size_t i = 0; i < changes.size(); ++i) text += (i == 0 ? "" : "; ") + changes[i];
  return text;
}

}  // namespace mantissa::train
