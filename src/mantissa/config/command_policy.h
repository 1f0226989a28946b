// The policy of commands that have no config.
#pragma once

#include "mantissa/config/run_config.h"

namespace mantissa::config {

/// Returns the policy of a command that has no config and no steps: 32-true where none is named, with the
/// rules that hold in step 0 of the forward pass, and of the backward pass where `backward` is true. Notes on
/// how it was read go to `told` where it is not null. Throws ConfigError.
precision::Policy command_policy(const PrecisionArguments& arguments, Told* told = nullptr,
                                 bool backward = false);

/// Returns `policy` without the rules of the update and, unless `backward`, of the backward pass. A note on
/// what is left out goes to `told` where it is not null.
precision::Policy without_training(const precision::Policy& policy, bool backward, Told* told = nullptr);

}  // namespace mantissa::config
