// The policy of commands that have no config.
#pragma once

#include "mantissa/config/run_config.h"

namespace mantissa::config {

/// Returns the policy of a command that has no config and no steps: 32-true where none is named, with the
/// rules that hold in step 0. Notes on how it was read go to `told` where it is not null. Throws ConfigError.
precision::Policy command_policy(const PrecisionArguments& arguments, Told* told = nullptr);

}  // namespace mantissa::config
