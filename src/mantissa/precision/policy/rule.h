// The two text forms of a rule.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/precision/policy/policy.h"

namespace mantissa::precision {

/// Parses "SCOPE-GLOB: field=value …" (op, pass, operand and steps are allowed among the fields), or the TOML
/// inline table {match = "SCOPE-GLOB", op = "softmax", pass = "backward", operand = "a", steps = "0:500",
/// field = value, …}. Throws ConfigError.
Rule parse_rule(std::string_view text, std::string origin);

/// Returns the keys of a rule: patterns, then fields.
std::vector<std::string> rule_keys();

/// Sets one key of `rule`, a pattern or a field, from its text. Throws ConfigError.
void set_rule_key(Rule& rule, std::string_view key, std::string_view value);

/// Throws ConfigError if the rule sets nothing or its scope pattern is malformed.
void check_rule(const Rule& rule);

/// True if the rule's patterns match `use`.
bool matches(const Rule& rule, const Use& use);

}  // namespace mantissa::precision
