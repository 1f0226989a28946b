// The experts that the routers of a mixture of experts chose in a step, beside those of the same step in f32.
#pragma once

#include <map>
#include <string>

#include "mantissa/engine/runtime/router_record.h"
#include "mantissa/lab/audit/audit.h"

namespace mantissa::lab {

/// Counts, for each router, the tokens that have other experts in `seen` than in `exact`. A router that did
/// not see the same tokens in both has none: a step that failed ran a forward pass again.
std::map<std::string, RouterStep> compare(const std::map<std::string, runtime::Choices>& seen,
                                          const std::map<std::string, runtime::Choices>& exact);

}  // namespace mantissa::lab
