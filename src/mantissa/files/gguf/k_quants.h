// Quantization to blocks of 256 elements, the K types of ggml.
//
// Source: ggml-quants.c of ggml (github.com/ggml-org/ggml), quantize_row_q3_K_ref, _q4_K_ref, _q5_K_ref and
// _q6_K_ref: how the scales of groups are searched, and in which order sums are added.
#pragma once

#include <cstddef>

#include "mantissa/files/gguf/tensor_type.h"

namespace mantissa::gguf {

/// Returns true for Q3_K, Q4_K, Q5_K and Q6_K.
bool is_k_type(TensorType type);

/// Encodes n values, a multiple of 256, as a type for which is_k_type() holds. All operations are in f32, in
/// a fixed order. In each group of 16 or 32 elements, the scale, of Q4_K and Q5_K the scale and the minimum,
/// is the best of about 20 that are tried, by the squared errors: weighted by x² in Q3_K and Q6_K, by the
/// group's rms + |x| in Q4_K and Q5_K. The scales are then rounded to 6 or 8 bits under an f16 scale of the
/// block, and the codes are those nearest under the rounded scales. Returns false, with unusable contents, if
/// a value is not finite or a block's scale exceeds f16.
bool quantize_k(TensorType type, const float* values, std::size_t n, std::byte* out);

}  // namespace mantissa::gguf
