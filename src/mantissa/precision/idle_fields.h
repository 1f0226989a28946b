// Fields of a policy that are set and can have no effect.
#pragma once

#include <string>
#include <vector>

#include "mantissa/precision/policy.h"

namespace mantissa::precision {

/// A sentence for each field of `policy` that is not as usual and that nothing it says, its rules included,
/// lets have an effect: accumulate_block, scaling, scale_margin, amax_history.
std::vector<std::string> idle_fields(const Policy& policy);

}  // namespace mantissa::precision
