// precision.native_only: rejects runs that need a format without native support.
#pragma once

#include <span>

#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/setup/forecast/target.h"

namespace mantissa::forecast {

/// Throws ConfigError if `program` needs a format that one of `targets` lacks or, without targets, that
/// `device` does not support natively.
void check_native(const plan::Program& program, const runtime::Device& device,
                  std::span<const Target> targets = {});

}  // namespace mantissa::forecast
