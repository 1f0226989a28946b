// Rules as TOML tables.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "mantissa/precision/policy/policy.h"
#include "mantissa/precision/policy/toml.h"

namespace mantissa::precision {

/// Parses the inline table `text` ("{match = …}"). Throws ConfigError.
Rule rule_from_toml(std::string_view text);

/// Reads the rule in `table`, with an empty origin. Throws ConfigError.
Rule rule_from_table(const toml::table& table);

/// Returns the policy-line text of a TOML value: "bf16", true → "true", 128 → "128". Returns null for other
/// types.
std::optional<std::string> value_text(const toml::node& value);

}  // namespace mantissa::precision
