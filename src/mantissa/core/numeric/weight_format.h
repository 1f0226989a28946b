// Formats in which weights are served. A run that trains for one rounds weights to it before their products
// (policy field `weights`).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "mantissa/core/numeric/simd_target.h"

namespace mantissa {

/// `none` leaves weights as they are.
enum class WeightFormat : std::uint8_t { none, q4_0, q8_0, int4_32, nf4, mxfp4, nvfp4 };

inline constexpr WeightFormat kWeightFormats[] = {
    WeightFormat::none, WeightFormat::q4_0,  WeightFormat::q8_0, WeightFormat::int4_32,
    WeightFormat::nf4,  WeightFormat::mxfp4, WeightFormat::nvfp4};

/// Returns "q4_0", "int4-32".
std::string_view name(WeightFormat f);
/// Returns the format with the name `text`, in any letter case, or null.
std::optional<WeightFormat> parse_weight_format(std::string_view text);

/// Returns the number of elements that share a scale; 1 for `none`.
std::size_t block_of(WeightFormat f);
/// Returns true if a tensor has a scale besides those of its blocks.
constexpr bool scales_tensor(WeightFormat f) {
  return f == WeightFormat::nvfp4;
}

/// Replaces row[0, n) by the values of its codes. Blocks begin at row[0], and n is a multiple of block_of(f).
/// Codes and scales are those of the quantizers that write such files, to which rounded values are exact:
/// - q4_0, q8_0: quantize_blocks() (core/numeric/quantize_blocks.h);
/// - nf4: quantize_rows() (core/numeric/quantize_rows.h);
/// - mxfp4, nvfp4: round_blocks() (core/numeric/scaled.h), with the scale floor and, for nvfp4, times
///   `tensor_scale`, that of the largest finite magnitude of the tensor;
/// - int4-32: scale = bf16(largest |x| / 7), or 0 if that is below 2^-100; code = x / scale in f32, rounded
/// to
///   nearest even and limited to [−7, 7].
/// A block with a value that is not finite, or with a scale beyond its format, becomes NaN.
void round_weights(WeightFormat f, float* row, std::size_t n, float tensor_scale = 1,
                   SimdTarget target = kBestTarget);

}  // namespace mantissa
