// The steps between the keys that were said and a checked config.
#pragma once

#include "mantissa/train/config.h"
#include "mantissa/train/config_entries.h"

namespace mantissa::train {

/// The policy that the entries of [precision] say. Throws ConfigError.
precision::Policy read_policy(const Entries& entries);

/// Fills in the defaults that depend on other keys, and checks what no key can be checked for alone. Throws
/// ConfigError.
void settle(RunConfig& config, const Entries& entries);

}  // namespace mantissa::train
