// The steps of run.epochs and checkpoint.epochs.
#pragma once

#include "mantissa/engine/model/config.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::data {

/// Reads the rows of [data] for `model` and returns for each of both keys the fewest steps that train that
/// many times as many rows as an epoch has. Rows held out for validation do not count; packs of rows have as
/// many rows as they have. Throws ConfigError for data without a number of rows: generated ones, prompts of
/// rl, and mixtures, whose sources have epochs of their own; and as load_dataset() and load_pairs() do.
config::EpochSteps steps_of_epochs(const config::RunConfig& config, const model::ModelConfig& model);

}  // namespace mantissa::data
