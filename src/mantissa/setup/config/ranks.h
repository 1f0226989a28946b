// The number of ranks that can share a run.
#pragma once

#include "mantissa/setup/config/run_config.h"

namespace mantissa::config {

/// Throws ConfigError, with the shards that would fit, if ranks cannot have equal numbers of shards.
void check_shards(const BatchSection& batch, int ranks);

}  // namespace mantissa::config
