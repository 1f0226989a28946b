// Forecasts for a plan on another machine: time by stated rates, memory, and missing formats.
#pragma once

#include <string>
#include <vector>

#include "mantissa/engine/plan/program.h"
#include "mantissa/setup/forecast/target.h"

namespace mantissa::forecast {

/// Returns the formats that `program` needs, as supported by `target`. f32 and f64 are listed only for
/// factors: every machine stores and adds them.
std::vector<TargetFormat> formats_needed(const plan::Program& program, const Target& target);

/// Returns one sentence for each format that `program` needs and `target` lacks, with the substitute and a
/// native preset.
std::vector<std::string> format_warnings(const plan::Program& program, const Target& target);

/// Returns the seconds of `micro_batches` runs of the forward and backward phases, and of the update if there
/// is one. For each step it uses the longer of its arithmetic and its traffic at the shares of the target's
/// rates, but at least the time to start a kernel (Williams, Waterman and Patterson, "Roofline", 2009).
/// Returns 0 if the target cannot multiply one of the formats.
double forecast_seconds_on(const Target& target, const plan::Program& program, double micro_batches);

}  // namespace mantissa::forecast
