// What this machine can do at most: the yardsticks that every report measures itself against.
#pragma once

#include "mantissa/kernels/context.h"
#include "mantissa/numeric/format.h"

namespace mantissa::kernels {

/// Fused multiply-adds on registers, counted as two flops each, with `ctx.threads` threads: flop/s, the best
/// of 60 runs of about 0.5 ms, or of more where others take the cores meanwhile. `arithmetic`: f32 or f64.
double measure_fma_peak(const Context& ctx, Scalar arithmetic);

/// a[i] = b[i] + s · c[i] over three arrays that take `bytes` together, at most 96 MB: bytes/s read and
/// written, in about 50 ms. Arrays as large as the work that is to be forecast see the caches that it will
/// see.
double measure_bandwidth(const Context& ctx, std::size_t bytes);

/// A sum over 256 MB, far more than caches hold: bytes/s read, the best of a few passes of about 10 ms. What
/// generation is limited by, which reads every weight once a token.
double measure_read_bandwidth(const Context& ctx);

}  // namespace mantissa::kernels
