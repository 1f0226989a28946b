// What a run trains on, by its config: the data of its objective, as the task of a trainer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/rows.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/train/rl/task.h"
#include "mantissa/train/steps/task.h"

namespace mantissa::run {

/// The task of a run, and its config with what the data determines: under rl, the sequence length.
struct Work {
  config::RunConfig config;
  std::unique_ptr<train::Task> task;
};

/// Reads the data of the objective, or takes `memory` unless it is empty. Adds lines about the data to
/// `notes` unless it is null. `source` is the run's model; what its config.json says of padding is removed if
/// rows of a reward model end with that token. Under rl, `on_rollout` is called, and `make_rule` makes the
/// rule in place of rl.reward. Throws ConfigError and FileError for data that the objective cannot use, and
/// ConfigError for a `make_rule` of another objective.
Work work_of(const config::RunConfig& config, weights::ModelSource& source, data::Memory memory,
             const runtime::Device& device, std::vector<std::string>* notes, rl::OnRollout on_rollout = {},
             rl::MakeRule make_rule = {});

}  // namespace mantissa::run
