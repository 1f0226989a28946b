// Quantization to blocks of 32 elements with f16 scales, as ggml defines them (core/numeric/quants.h).
//
// Source: ggml-quants.c of ggml (github.com/ggml-org/ggml), quantize_row_q4_0_ref and quantize_row_q8_0_ref.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/quants.h"

namespace mantissa {

/// Encodes n values, a multiple of 32, as q4_0 or q8_0; all operations are in f32.
/// - q4_0: scale = x / −8, where x is the first value of the largest magnitude, with its sign; code =
///   trunc(x · (1 / scale) + 8.5), at most 15;
/// - q8_0: scale = largest |x| / 127; code = round(x · (1 / scale)) with halves away from zero.
/// The scale is then rounded to f16. Returns the number of blocks that are encoded: less than n / 32 if a
/// value of the next one is not finite, or its scale exceeds f16 (largest |x| of 524,160 or more in q4_0, of
/// 8,321,039 or more in q8_0).
std::size_t quantize_blocks(QuantFormat f, const float* values, std::size_t n, std::uint8_t* out);

}  // namespace mantissa
