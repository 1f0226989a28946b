// Rules as TOML tables.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "mantissa/precision/policy.h"
#include "mantissa/precision/toml.h"

namespace mantissa::precision {

/// The rule that the inline table `text` ("{match = …}") says. Throws ConfigError.
Rule rule_from_toml(std::string_view text);

/// The rule that `table` says; its origin is empty. Throws ConfigError.
Rule rule_from_table(const toml::table& table);

/// The text that a policy line has for a TOML value: "bf16", true → "true", 128 → "128"; none for other
/// types.
std::optional<std::string> value_text(const toml::node& value);

}  // namespace mantissa::precision
