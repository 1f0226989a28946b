// run.epochs and checkpoint.epochs, which stand for numbers of steps that only the data tell.
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/setup/config/entries.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::config {

/// Chooses between run.epochs and run.steps, and between checkpoint.epochs and checkpoint.interval: of both,
/// the one from --set counts. Sets the steps to those of `known`, and the epochs to 0. If they are not known
/// yet, sets run.steps to a number that lets the other keys be checked, and leaves the epochs. Throws
/// ConfigError if the config sets both, or has stages.
void settle_epochs(RunConfig& config, const Entries& entries, const std::optional<EpochSteps>& known,
                   Told& told);

}  // namespace mantissa::config
