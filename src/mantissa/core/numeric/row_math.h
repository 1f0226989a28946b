// The functions of core/numeric/math-inl.h over rows, for callers outside SIMD code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/simd_target.h"

namespace mantissa {

enum class MathFunction : std::uint8_t { exp, log, tanh, sigmoid, rsqrt, sin, cos, normal_cdf };

/// Sets out[i] = function(in[i]) for i < n. `in` and `out` may be equal. core/numeric/math-inl.h lists the
/// errors in ulp.
void map_row(MathFunction function, const float* in, std::size_t n, float* out,
             SimdTarget target = kBestTarget);
void map_row(MathFunction function, const double* in, std::size_t n, double* out,
             SimdTarget target = kBestTarget);

}  // namespace mantissa
