// The learning-rate schedule of a config.
#pragma once

#include <string>

#include "mantissa/engine/optim/schedule.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::config {

/// Returns the schedule of a run without stages, or of the config of a stage.
optim::Schedule schedule_of(const RunConfig& config);

/// Returns for example "0.0003 after 20 steps of warm-up, from step 270 on by cosine to 3e-05 at step 300".
std::string schedule_text(const RunConfig& config);

}  // namespace mantissa::config
