// Quantization of weights to int8 and nf4 (core/numeric/quants.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/core/numeric/quants.h"

namespace mantissa {

/// Memory of a matrix in int8, nf4 or nf4_double.
struct QuantMatrix {
  QuantFormat format = QuantFormat::int8;
  std::size_t rows = 0, width = 0;
  std::uint8_t* data = nullptr;  // quant_bytes(format, rows, width)
};

/// Quantizes rows [first, first + rows) of a matrix. `values` holds these rows, which are finite. Writes
/// their codes, and of int8 and nf4 their scales. All operations are in f32 and round to nearest even.
///
/// - int8: m = max(largest |x| of the row, 2^-120); code = round(x · (127 / m)), scale = m / 127.
/// - nf4: m = largest |x| of the 64 elements; y = x · (1 / max(m, 10^-38)), limited to [−1, 1]; the code is
/// the
///   number of midpoints (kNormalFloat4[i] + kNormalFloat4[i + 1]) / 2 below y, so the nearest number, and
///   the lower one of two; scale = m. These are the codes and scales of bitsandbytes' quantize_4bit().
///
/// With nf4_double, the scales are written to `scales`, one for every 64 elements, from that of the first row
/// on; quantize_scales() then writes those of all rows. Rows may be quantized in any order and in parallel.
void quantize_rows(const QuantMatrix& to, std::size_t first, std::size_t rows, const float* values,
                   float* scales = nullptr, SimdTarget target = kBestTarget);

/// Writes the scales of a matrix in nf4_double. With d = scale − mean, m = the largest |d| of a group of 256,
/// and y = d · (1 / max(m, 10^-38)), limited to [−1, 1], the code is the number of midpoints of kDynamicCodes
/// below y, and the group's scale is m. The mean is summed in f64 and rounded to f32.
///
/// Source: bitsandbytes, quantize_4bit() with compress_statistics; docs/numerics.md lists the differences.
void quantize_scales(const QuantMatrix& to, std::span<const float> scales);

}  // namespace mantissa
