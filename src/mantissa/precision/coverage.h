// Whether a policy's rules speak of anything that a graph has.
#pragma once

#include <span>
#include <string>

#include "mantissa/precision/policy.h"

namespace mantissa::precision {

/// A node of a graph, as rules see it.
struct Place {
  std::string scope;
  std::string op;
};

/// Throws ConfigError where a rule's patterns match none of `places` in any pass or step; the message names
/// the rule, where it was written, and the nearest op or scope that exists.
void check_rules_match(const Policy& policy, std::span<const Place> places);

}  // namespace mantissa::precision
