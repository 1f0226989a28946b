// Products of the forward phase that may run at once, which saves the threads' wait after each.
#pragma once

#include <cstddef>
#include <vector>

#include "mantissa/engine/plan/lifetimes.h"
#include "mantissa/engine/plan/program.h"

namespace mantissa::plan {

/// Returns for each step the end of the joint products that begin there: consecutive products of which none
/// reads another's result, as those of q, k and v, or of the mixtures of RWKV-7. A step that is not such a
/// product ends at the next one.
std::vector<std::size_t> joint_products(const Program& program);

/// Extends the lifetimes of the inputs of joint products to the last of them.
void extend_over_joint_products(const Program& program, std::vector<Lifetime>& lives);

}  // namespace mantissa::plan
