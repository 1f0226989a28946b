// The text form of a loss scale.
#pragma once

#include <string_view>

#include "mantissa/precision/policy.h"

namespace mantissa::precision {

/// Parses "none", "dynamic" (from 2^16), "dynamic:2^12", "dynamic:1000", "128" or "2^7". Throws ConfigError
/// unless the scale is positive and within f32, the format of the loss.
LossScale parse_loss_scale(std::string_view text);

}  // namespace mantissa::precision
