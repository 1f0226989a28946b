// What of the policy language this version's kernels and passes carry out.
#pragma once

#include "mantissa/precision/policy.h"

namespace mantissa::precision {

/// Throws ConfigError where `policy` asks for something that would not be carried out exactly: the message
/// names the field, its value, and what to use instead. The values that pass:
///   under params=f64: every format f64 (checkpoint f32);
///   else: accumulate, output, reduce, optimizer, checkpoint f32; params, grads, residual and kv f32, bf16 or
///   f16; compute f32, tf32, bf16 or f16; always: accumulate_block 0, rounding nearest, no kahan, saturate or
///   flush_subnormals; any loss scale; rules by scope, op and forward or backward pass.
void check_supported(const Policy& policy);

}  // namespace mantissa::precision
