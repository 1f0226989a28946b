// Explains why a rule matches nothing in a graph.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mantissa/precision/policy/policy.h"

namespace mantissa::precision {

/// An op that rules can match.
struct Place {
  std::string scope;
  std::string op;
  Pass pass = Pass::forward;
  std::vector<std::string> operands = {};
  std::string id = {};
};

/// Returns which part of `rule`, which matches none of `places`, does not exist, with the nearest one that
/// does: "the model has no op "matmull"; did you mean "matmul"? …". Returns "" for an unknown scope without a
/// near match.
std::string why_unmatched(const Rule& rule, std::span<const Place> places);

}  // namespace mantissa::precision
