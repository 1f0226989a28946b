// The functions of numeric/math-inl.h over rows, for callers that are not SIMD code themselves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/numeric/simd_target.h"

namespace mantissa {

enum class MathFunction : std::uint8_t { exp, log, tanh, erf, sigmoid, rsqrt, sin, cos };

/// out[i] = function(in[i]) for i < n; `in` and `out` may be the same. Errors in ulp: numeric/math-inl.h.
void map_row(MathFunction function, const float* in, std::size_t n, float* out,
             SimdTarget target = kBestTarget);
void map_row(MathFunction function, const double* in, std::size_t n, double* out,
             SimdTarget target = kBestTarget);

/// What LaneSum and MaxRow of numeric/lanes-inl.h give for the `n` elements at `p`: their sum, the sum of
/// products with `q`, and the largest.
struct RowReductions {
  double sum = 0;
  double product = 0;
  double max = 0;
};
RowReductions reduce_row(const float* p, const float* q, std::size_t n, SimdTarget target = kBestTarget);
RowReductions reduce_row(const double* p, const double* q, std::size_t n, SimdTarget target = kBestTarget);

}  // namespace mantissa
