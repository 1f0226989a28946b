// The learning-rate schedule of a config.
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/engine/optim/schedule.h"
#include "mantissa/setup/config/entries.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::config {

/// Returns the schedule of a run without stages, or of the config of a stage.
optim::Schedule schedule_of(const RunConfig& config);

/// Returns this share of run.steps, rounded up.
std::int64_t share_of_steps(const RunConfig& config, double share);

/// Turns schedule.warmup_ratio into schedule.warmup_steps. Throws ConfigError if a key beside it says
/// otherwise.
void settle_warmup_ratio(RunConfig& config, const Entries& entries);

/// A config may be written for longer runs, so a warm-up that does not fit is as long as the run. Adds notes
/// and warnings to `told`. Throws ConfigError for keys that only another schedule reads.
void settle_schedule(RunConfig& config, const Entries& entries, Told& told);

/// Returns for example "0.0003 after 20 steps of warm-up, from step 270 on by cosine to 3e-05 at step 300".
std::string schedule_text(const RunConfig& config);

}  // namespace mantissa::config
