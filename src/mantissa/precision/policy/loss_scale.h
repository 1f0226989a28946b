// The text form of a loss scale.
#pragma once

#include <string_view>

#include "mantissa/precision/policy/policy.h"

namespace mantissa::precision {

/// True if f32, the format of the loss, holds the scale and its reciprocal, by which gradients are
/// multiplied.
bool is_loss_scale(double value);

/// Parses "none", "dynamic" (from 2^16), "dynamic:2^12", "dynamic:1000", "128" or "2^7". Throws ConfigError
/// unless is_loss_scale() is true.
LossScale parse_loss_scale(std::string_view text);

}  // namespace mantissa::precision
