// Rows of any scalar format into rows of f32 or f64 and back: numeric/convert-inl.h for callers that are not
// SIMD code themselves.
#pragma once

#include <cstddef>

#include "mantissa/numeric/format.h"
#include "mantissa/numeric/simd_target.h"

namespace mantissa {

/// dst[0, n) = elements [offset, offset + n) of `src`, stored as `type`. Exact, but for f64 into f32 (nearest
/// even).
void load_row(const void* src, Scalar type, std::size_t offset, std::size_t n, float* dst,
              SimdTarget target = kBestTarget);
void load_row(const void* src, Scalar type, std::size_t offset, std::size_t n, double* dst,
              SimdTarget target = kBestTarget);

/// Elements [offset, offset + n) of `dst`, stored as `type`, = src[0, n), rounded once to nearest even.
void store_row(const float* src, std::size_t n, void* dst, Scalar type, std::size_t offset,
               SimdTarget target = kBestTarget);
void store_row(const double* src, std::size_t n, void* dst, Scalar type, std::size_t offset,
               SimdTarget target = kBestTarget);

/// row[0, n) rounded to nearest even on the grid of `type`, in place.
void round_row(float* row, std::size_t n, Scalar type, SimdTarget target = kBestTarget);
void round_row(double* row, std::size_t n, Scalar type, SimdTarget target = kBestTarget);

}  // namespace mantissa
