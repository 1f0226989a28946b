// What of the policy language this version's kernels and passes carry out.
#pragma once

#include "mantissa/precision/policy.h"

namespace mantissa::precision {

/// Throws ConfigError where `policy` asks for something that would not be carried out exactly: the message
/// names the field, its value, and what to use instead. The values that pass:
///   under params=f64: every format f64, but for checkpoint;
///   else: no f64, but for checkpoint; optimizer f32 or, as check_update has it, tf32 or bf16; checkpoint
///   whatever safetensors names; the other formats any; another rounding than to nearest, and kahan, where
///   something is rounded so; an amax_history of 1 to 65536 steps. Rules of the update set optimizer,
///   rounding and kahan only, rules of some steps none of what is kept from step to step.
void check_supported(const Policy& policy);

/// Throws ConfigError where a parameter's moments would not follow its gradients: bf16 moments are rounded
/// stochastically, or to nearest where the weight is below f32 and compensated; tf32 moments not toward zero.
void check_update(const Resolved& parameter);

}  // namespace mantissa::precision
