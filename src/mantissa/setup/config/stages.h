// The stages of a run, [[run.stage]]: consecutive steps with another length of sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "mantissa/engine/model/config.h"
#include "mantissa/setup/config/entries.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::config {

/// Returns a note that the warm-up of `key` ends with the last step, because it has `warmup` steps and the
/// run or stage only `steps`, which `of` names.
std::string shorter_warmup(std::string_view key, std::int64_t warmup, std::string_view of,
                           std::int64_t steps);

/// Reads [[run.stage]] and sets run.steps to their sum. Keys that a stage omits have the config's values.
/// --set run.steps=N keeps only the first N steps of the stages. Afterwards the config's own values are those
/// of the first stage. Adds notes on shorter stages and warm-ups to `told`. Throws ConfigError.
void settle_stages(RunConfig& config, const Entries& entries, Told& told);

/// Returns a "[[run.stage]]" table for each stage, or "" without stages.
std::string stages_text(const std::vector<Stage>& stages);

/// Returns the number of stages; 1 for a config without [[run.stage]].
std::size_t stage_count(const RunConfig& config);
/// Returns the number of steps before stage `stage`.
std::int64_t first_step(const RunConfig& config, std::size_t stage);
/// Returns the stage of the step after `done` steps; after the last step, the last stage.
std::size_t stage_at(const RunConfig& config, std::int64_t done);

/// Returns the stage as a run of its own: its length, batch, learning rate, warm-up, sources and number of
/// steps. Rules of the policy still count the steps of the whole run.
RunConfig stage_config(const RunConfig& config, std::size_t stage);

/// Returns `model` with the rotary angles of the stage: the base of its rope_theta, if it has one, and at
/// least its length as max_position_embeddings. Without stages, returns the model. Throws ConfigError if the
/// stage is longer than the model's learned positions, or has another base and the model no rotary angles.
model::ModelConfig stage_model(const RunConfig& config, const model::ModelConfig& model, std::size_t stage);

/// Returns `model` with the fields that [model] sets beside a path or a config, and the base that the name
/// of a table stands for.
model::ModelConfig overridden(const RunConfig& config, const model::ModelConfig& model);

}  // namespace mantissa::config
