// The named policies. A new preset is one more row of the table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/precision/policy/policy.h"

namespace mantissa::precision {

struct Preset {
  std::string name;
  std::vector<std::string> aliases;  // Fabric's short names and torch's dtype names
  Fields fields;                     // all set
  std::string_view meaning;          // in lower case, without a full stop
};

/// Returns all presets.
std::span<const Preset> presets();

/// Returns the preset with the name or alias `name`, in any letter case. Throws ConfigError with the nearest
/// known spelling.
const Preset& find_preset(std::string_view name);

/// Returns the preset with exactly these fields, or null.
const Preset* preset_of(const Fields& fields);

/// Returns "presets: 64-true, …; or a policy line such as …", which ends the messages of unsupported
/// policies.
std::string trainable();

}  // namespace mantissa::precision
