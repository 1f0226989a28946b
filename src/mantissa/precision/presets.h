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

/// The presets that this version trains.
std::span<const Preset> presets();

/// The preset called `name`, or by an alias, in any case. Throws ConfigError that names the nearest right
/// spelling, or says that the preset is known and not of this version.
const Preset& find_preset(std::string_view name);

/// The preset whose fields are `fields`; null where there is none.
const Preset* preset_of(const Fields& fields);

/// "64-true, 32-true, bf16-mixed, or a policy line …": the sentence's end that says what this version trains.
std::string trainable();

}  // namespace mantissa::precision
