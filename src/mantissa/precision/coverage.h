// Why a rule speaks of nothing that a graph has.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mantissa/precision/policy.h"

namespace mantissa::precision {

/// Something that rules can speak of.
struct Place {
  std::string scope;
  std::string op;
  Pass pass = Pass::forward;
  std::vector<std::string> operands = {};
};

/// What of `rule`, which matches none of `places`, is not there, with the nearest that is: "the model has no
/// op "matmull"; did you mean "matmul"? …". Empty where nothing is near.
std::string why_unmatched(const Rule& rule, std::span<const Place> places);

}  // namespace mantissa::precision
