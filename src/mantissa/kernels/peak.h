// Measures the peak rates of this machine, which reports use as their reference.
#pragma once

#include "mantissa/core/numeric/format.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/units.h"

namespace mantissa::kernels {

/// Runs of a measured peak.
inline constexpr int kPeakRuns = 60;

/// Measures register-only fused multiply-adds, two flops each, on `ctx.threads` threads. Returns flop/s, the
/// best of `runs` runs of about 0.5 ms, or of up to three times as many if other processes use the cores.
/// `arithmetic` is f32 or f64.
double measure_fma_peak(const Context& ctx, Scalar arithmetic, int runs = kPeakRuns);

/// Measures the register-only multiply-adds of a unit in the same way: FMA in f32. Returns 0 if this machine
/// lacks the unit, and for models.
double measure_peak(const Context& ctx, UnitId unit, int runs = kPeakRuns);

/// Measures a[i] = b[i] + s · c[i] over three arrays of `bytes` together, at most 96 MB. Returns bytes/s read
/// and written; takes about 50 ms. Arrays as large as the forecast workload use the caches in the same way.
double measure_bandwidth(const Context& ctx, std::size_t bytes);

/// Measures a sum over 256 MB, far more than the caches hold. Returns bytes/s read, the best of a few passes
/// of about 10 ms. This limits generation, which reads every weight once per token.
double measure_read_bandwidth(const Context& ctx);

}  // namespace mantissa::kernels
