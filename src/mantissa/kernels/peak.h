// What this machine can do at most: the yardsticks that every report measures itself against.
#pragma once

#include "mantissa/kernels/context.h"
#include "mantissa/numeric/format.h"

namespace mantissa::kernels {

/// Fused multiply-adds on registers, counted as two flops each, with `ctx.threads` threads: flop/s, the best of a few short
/// runs of about 5 ms. `arithmetic`: f32 or f64.
double measure_fma_peak(const Context& ctx, Scalar arithmetic);

/// a[i] = b[i] + s · c[i] over arrays far larger than the caches: bytes/s read and written. Takes 96 MB and about 50 ms.
double measure_bandwidth(const Context& ctx);

}  // namespace mantissa::kernels
