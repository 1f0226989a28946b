// What of the policy language this version's kernels and passes carry out.
#pragma once

#include "mantissa/precision/policy.h"

namespace mantissa::precision {

/// Throws ConfigError where `policy` asks for something that would not be carried out exactly: the message
/// names the field, its value, and what to use instead. The values that pass:
///   under params=f64: every format f64 (checkpoint f32);
///   else: accumulate, output, reduce, checkpoint f32; params, grads, residual and kv f32, bf16 or f16;
///   compute f32, tf32, bf16 or f16; optimizer f32 or, as check_update has it, bf16; another rounding than to
///   nearest, and kahan, where something is rounded so; always: accumulate_block 0, no saturate or
///   flush_subnormals; any loss scale; rules by scope, op and forward or backward pass.
void check_supported(const Policy& policy);

/// Throws ConfigError where a parameter's moments would not follow its gradients: bf16 moments are rounded
/// stochastically, or to nearest where the weight is below f32 and compensated.
void check_update(const Resolved& parameter);

}  // namespace mantissa::precision
