// The selection of observed values, log.observe.
#pragma once

#include <string_view>
#include <vector>

#include "mantissa/precision/policy/policy.h"

namespace mantissa::config {

/// Parses "SCOPE; SCOPE: op=softmax pass=backward steps=0:500; …": scope globs as in rules, each with at most
/// an op, a pass and steps. Returns them as rules without fields. Throws ConfigError.
std::vector<precision::Rule> parse_observed(std::string_view text);

}  // namespace mantissa::config
