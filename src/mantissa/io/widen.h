// Stored floating-point values made f32 or f64 on their way in from a file.
#pragma once

#include <cstddef>
#include <span>

#include "mantissa/io/safetensors.h"

namespace mantissa::io {

/// Whether widen takes `dtype`: F64, F32, BF16, F16.
bool is_readable_float(Dtype dtype);

/// Converts `stored` (little-endian values of `dtype`, out.size() of them) into `out`: exact, but for f64
/// into f32, which rounds to nearest even. Throws DtypeError for other dtypes.
void widen(std::span<const std::byte> stored, Dtype dtype, std::span<float> out);
void widen(std::span<const std::byte> stored, Dtype dtype, std::span<double> out);

}  // namespace mantissa::io
