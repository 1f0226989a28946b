// Fields of a policy that are set but have no effect.
#pragma once

#include <string>
#include <vector>

#include "mantissa/precision/policy/policy.h"

namespace mantissa::precision {

/// Returns a sentence for each of accumulate_block, accumulate_order, scaling, scale_margin and amax_history
/// that differs from its usual value but has no effect under `policy` and its rules.
std::vector<std::string> idle_fields(const Policy& policy);

}  // namespace mantissa::precision
