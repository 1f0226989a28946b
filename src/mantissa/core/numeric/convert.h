// Converts rows of any scalar format to rows of f32 or f64 and back: core/numeric/convert-inl.h for callers
// outside SIMD code.
#pragma once

#include <cstddef>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/simd_target.h"

namespace mantissa {

/// Loads dst[0, n) from elements [offset, offset + n) of `src`, stored as `type`. Exact, except that f64
/// rounds to nearest even in f32.
void load_row(const void* src, Scalar type, std::size_t offset, std::size_t n, float* dst,
              SimdTarget target = kBestTarget);
void load_row(const void* src, Scalar type, std::size_t offset, std::size_t n, double* dst,
              SimdTarget target = kBestTarget);

/// Rounds src[0, n) once, to nearest even, and writes it to elements [offset, offset + n) of `dst`, stored as
/// `type`.
void store_row(const float* src, std::size_t n, void* dst, Scalar type, std::size_t offset,
               SimdTarget target = kBestTarget);
void store_row(const double* src, std::size_t n, void* dst, Scalar type, std::size_t offset,
               SimdTarget target = kBestTarget);

/// Rounds row[0, n) to nearest even on the grid of `type`, in place.
void round_row(float* row, std::size_t n, Scalar type, SimdTarget target = kBestTarget);
void round_row(double* row, std::size_t n, Scalar type, SimdTarget target = kBestTarget);

}  // namespace mantissa
