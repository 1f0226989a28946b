// Converts stored floating-point values to f32 or f64 on load.
#pragma once

#include <cstddef>
#include <span>

#include "mantissa/files/io/safetensors.h"

namespace mantissa::io {

/// True if widen accepts `dtype`: F64, F32, BF16, F16.
bool is_readable_float(Dtype dtype);

/// Converts `stored` (out.size() little-endian values of `dtype`) to `out`. Exact, except that f64 rounds to
/// nearest even in f32. Throws DtypeError for other dtypes.
void widen(std::span<const std::byte> stored, Dtype dtype, std::span<float> out);
void widen(std::span<const std::byte> stored, Dtype dtype, std::span<double> out);

}  // namespace mantissa::io
