// What a run trains on, by its config: the data of its objective, as the task of a trainer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mantissa/config/run_config.h"
#include "mantissa/data/rows.h"
#include "mantissa/runtime/device.h"
#include "mantissa/train/task.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::run {

/// Reads the data of every objective but rl, or takes `memory` unless it is empty, and returns the task. Adds
/// lines about the data to `notes` unless it is null. `source` is the run's model; what its config.json says
/// of padding is removed if rows of a reward model end with that token. Throws ConfigError and FileError for
/// data that the objective cannot use, and ConfigError for the objective rl.
std::unique_ptr<train::Task> task_of(const config::RunConfig& config, weights::ModelSource& source,
                                     data::Memory memory, const runtime::Device& device,
                                     std::vector<std::string>* notes);

}  // namespace mantissa::run
