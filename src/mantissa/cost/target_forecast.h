// What a plan needs on another machine: time by the machine's stated rates, memory, and formats it lacks.
#pragma once

#include <string>
#include <vector>

#include "mantissa/cost/target.h"
#include "mantissa/plan/program.h"

namespace mantissa::cost {

/// The formats that `program` needs, as `target` has them. f32 and f64 are listed where factors have them:
/// every machine stores and adds them.
std::vector<TargetFormat> formats_needed(const plan::Program& program, const Target& target);

/// One sentence for each format that `program` needs and `target` has not, with what is done instead and a
/// preset that the target has.
std::vector<std::string> format_warnings(const plan::Program& program, const Target& target);

/// Seconds of `micro_batches` runs of the forward and backward phases and of the update where there is one:
/// of each step the longer of its arithmetic and its traffic at the shares of the target's rates, and no less
/// than the target takes to start a kernel (Williams, Waterman and Patterson, "Roofline", 2009). 0 where the
/// target has no way to multiply one of the formats.
double forecast_seconds_on(const Target& target, const plan::Program& program, double micro_batches);

}  // namespace mantissa::cost
