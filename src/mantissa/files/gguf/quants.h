// Quantized rows as ggml defines them: blocks of codes with f16 scales, computed in f32.
//
// Every type is x = scale · code, or scale · code + minimum (for K types scale · code − minimum). The scale
// of a K type is itself an f16 value times a code of 4, 6 or 8 bits. All products are exact in f32: an f16
// value has 11 significant bits and the codes together at most 12, so only the last addition rounds. The
// results therefore do not depend on fused multiply-adds, and equal those of ggml-quants.c bit for bit.
#pragma once

#include <cstddef>
#include <string>

#include "mantissa/files/gguf/tensor_type.h"

namespace mantissa::gguf {

/// Writes the values of `blocks` consecutive blocks of a readable type to `out`, traits(type).block values
/// for each. `stored` holds traits(type).bytes bytes for each. F64 rounds to nearest even.
void dequantize(TensorType type, const std::byte* stored, std::size_t blocks, float* out);

/// The quantized types that quantize() writes.
inline constexpr TensorType kWrittenTypes[] = {TensorType::q8_0, TensorType::q6_k, TensorType::q5_k,
                                               TensorType::q4_k, TensorType::q4_0, TensorType::q3_k,
                                               TensorType::mxfp4};
/// Returns "q8_0, q6_k, … or mxfp4".
std::string written_types();

/// Encodes n values, a multiple of traits(type).block, as Q4_0 or Q8_0 (core/numeric/quantize_blocks.h), as
/// MXFP4, with codes of round_blocks() and the scale floor (core/numeric/scaled.h), or as a K type
/// (k_quants.h). Returns false, with unusable contents, if a value is not finite or a scale exceeds its
/// format.
bool quantize(TensorType type, const float* values, std::size_t n, std::byte* out);

}  // namespace mantissa::gguf
