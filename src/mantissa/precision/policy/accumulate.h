// The values of the field `accumulate`: a format, or a card with its options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/core/numeric/factor.h"

namespace mantissa::precision {

/// Reads "f32", "bf16", "h100", "h100 k=64" or "h100:f16:k=64". Throws ConfigError with the nearest known
/// value.
Accumulator parse_accumulator(std::string_view text);

/// Returns the value in the form that a policy line has: "f32", "h100", "h100:f16:k=64".
std::string accumulator_text(const Accumulator& value);

/// Returns the values without options: the names of formats, then those of cards.
std::vector<std::string> accumulator_values();

}  // namespace mantissa::precision
