// The part of the policy language that this version's kernels and passes support.
#pragma once

#include "mantissa/precision/policy/policy.h"

namespace mantissa::precision {

/// Throws ConfigError if `policy` asks for anything that would not be carried out exactly. The message names
/// the field, its value, and a replacement. Accepted values:
///   under params=f64: f64 in every format except checkpoint;
///   otherwise: no f64 except for checkpoint; optimizer f32, a format in blocks, or tf32 or bf16 subject to
///   check_update; for checkpoint, every safetensors format; any other format.
/// A rounding other than nearest, and kahan, need something to round. amax_history is 1 to 65536 steps. Rules
/// of the update set only optimizer, rounding, kahan and compute. Rules with steps do not set state kept
/// between steps.
void check_supported(const Policy& policy);

/// Throws ConfigError if a parameter's moments would not follow its gradients. bf16 moments need stochastic
/// rounding, or rounding to nearest with a compensated weight below f32. tf32 moments must not round toward
/// zero.
void check_update(const Resolved& parameter);

}  // namespace mantissa::precision
