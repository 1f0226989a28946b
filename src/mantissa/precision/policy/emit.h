// Writes a policy as the settings of another system.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/precision/policy/policy.h"

namespace mantissa::precision {

struct Emitted {
  std::string settings;              // Python, options of a command line, or JSON; lines end with a newline
  std::vector<std::string> missing;  // fields and rules that they do not express, and what they mean instead
};

/// Returns the settings of `system` that are nearest to the policy. They are read back as a policy; whatever
/// differs is in `missing`. Throws ConfigError for an unknown system.
Emitted emitted(const Policy& policy, std::string_view system);

/// Returns "te", "torchtitan", "megatron", "deepspeed".
std::vector<std::string> emitted_systems();

}  // namespace mantissa::precision
