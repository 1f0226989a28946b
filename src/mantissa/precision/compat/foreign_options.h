// Reads the options about precision of Megatron-LM and torchtitan.
//
// Sources: Megatron-LM's megatron/training/arguments.py, and torchtitan's [training] and quantize.linear
// options, of August 2026.
#pragma once

#include <optional>
#include <string_view>

#include "mantissa/precision/compat/foreign.h"

namespace mantissa::compat {

/// Translates a command line of Megatron-LM ("--bf16 --fp8-format hybrid") or torchtitan
/// ("--quantize.linear.float8.recipe_name rowwise"). Options that set no number format are ignored, with a
/// note. Returns null if no option sets one. Throws ConfigError for a value that no policy expresses.
std::optional<Foreign> policy_of_options(std::string_view text);

}  // namespace mantissa::compat
