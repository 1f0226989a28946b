// precision.native_only: a run that needs a format that the machine does not compute in itself is refused.
#pragma once

#include <span>

#include "mantissa/cost/target.h"
#include "mantissa/plan/program.h"

namespace mantissa::cost {

/// Throws ConfigError where `program` needs a format that one of `targets` lacks, or where there are no
/// targets, one that this machine does not compute in itself.
void check_native(const plan::Program& program, std::span<const Target> targets = {});

}  // namespace mantissa::cost
