// The policy of commands without a config.
#pragma once

#include "mantissa/setup/config/run_config.h"

namespace mantissa::config {

/// Returns the policy of a command without a config and without steps, by default 32-true. It keeps the rules
/// that apply to step 0 of the forward pass and, with `backward`, of the backward pass. Adds notes to `told`
/// unless it is null. Throws ConfigError.
precision::Policy command_policy(const PrecisionArguments& arguments, Told* told = nullptr,
                                 bool backward = false);

/// Returns `policy` without rules for the update and, unless `backward`, without rules for the backward pass.
/// Notes the removed rules in `told` unless it is null.
precision::Policy without_training(const precision::Policy& policy, bool backward, Told* told = nullptr);

}  // namespace mantissa::config
