// precision.native_only: rejects runs that need a format without native support.
#pragma once

#include <span>

#include "mantissa/cost/target.h"
#include "mantissa/plan/program.h"

namespace mantissa::cost {

/// Throws ConfigError if `program` needs a format that one of `targets` lacks or, without targets, that this
/// machine does not support natively.
void check_native(const plan::Program& program, std::span<const Target> targets = {});

}  // namespace mantissa::cost
