// What a run may change when it is resumed, and what it has changed.
#pragma once

#include <optional>
#include <string>

#include "mantissa/config/run_config.h"
#include "mantissa/io/state.h"

namespace mantissa::train {

/// Compares the config that `state` was saved under with `config`. Precision, optimizer settings, schedule,
/// length of the run, logging, checkpointing, threads, the micro-batch and recomputing may differ; the answer
/// says how, as "step 300: optimizer.lr 0.0003 -> 0.0001", and is nothing where they do not. `model`: the
/// model's config.json. Throws ConfigError where model, data, seed or batch differ: the run would not be the
/// same run.
std::optional<std::string> resumed_change(const io::StateHeader& state, const config::RunConfig& config,
                                          const std::string& model);

}  // namespace mantissa::train
