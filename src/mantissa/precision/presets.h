// The named policies. A later preset is one more row.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/precision/policy.h"

namespace mantissa::precision {

struct Preset {
  std::string name;
  std::vector<std::string> aliases;  // Fabric's short names and the names of torch's dtypes
  Fields fields;                     // all set
};

/// All presets.
std::span<const Preset> presets();

/// The preset called `name`, or by an alias, in any case. Throws ConfigError that names the nearest right
/// spelling.
const Preset& find_preset(std::string_view name);

/// The preset whose fields are `fields`; null where there is none.
const Preset* preset_of(const Fields& fields);

/// "presets: 64-true, …; or a policy line such as …": how a refusal ends.
std::string trainable();

}  // namespace mantissa::precision
