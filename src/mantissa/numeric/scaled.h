// Formats of 8 and 4 bits whose elements share scales: what rounding to them does to f32 values. The elements
// times their scales are kept in plain formats that hold them exactly.
//
// Sources: OCP Microscaling Formats (MX) Specification 1.0 (2023) for mxfp8 and mxfp4; NVIDIA's description
// of NVFP4 in Transformer Engine and TensorRT Model Optimizer for nvfp4; NVIDIA Transformer Engine for scales
// of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "mantissa/numeric/format.h"
#include "mantissa/numeric/simd_target.h"

namespace mantissa {

/// The scale of one tensor as a step uses it.
struct TensorScale {
  float scale = 1;        // what values are multiplied by before they are rounded; nvfp4: divided by
  float unscale = 1;      // what rounded values are multiplied by to be the tensor's
  float amax = 0;         // the largest magnitude seen since the step began
  bool recording = true;  // whether that is kept: not in validation
};

/// Formats in which the elements of a block share a scale.
enum class BlockFormat : std::uint8_t { mxfp8, mxfp8_e5m2, mxfp4, nvfp4 };

struct BlockTraits {
  std::string_view name;
  std::int32_t block;       // elements that share a scale
  int mantissa_bits;        // of an element
  int min_normal_exp;       // of an element; its subnormals follow
  double max_finite;        // of an element
  int max_exp;              // of an element
  bool power_of_two_scale;  // e8m0; else e4m3, under one f32 scale of the tensor
};

inline constexpr BlockFormat kBlockFormats[] = {BlockFormat::mxfp8, BlockFormat::mxfp8_e5m2,
                                                BlockFormat::mxfp4, BlockFormat::nvfp4};

/// mxfp8 has e4m3 elements, mxfp8-e5m2 e5m2 ones, mxfp4 and nvfp4 e2m1 ones.
constexpr BlockTraits traits(BlockFormat f) {
  constexpr BlockTraits kTable[] = {
      {"mxfp8", 32, 3, -6, 448, 8, true},
      {"mxfp8-e5m2", 32, 2, -14, 57344, 15, true},
      {"mxfp4", 32, 1, 0, 6, 2, true},
      {"nvfp4", 16, 1, 0, 6, 2, false},
  };
  return kTable[static_cast<std::size_t>(f)];
}

/// The format called `text` ("mxfp4", in any case); none where there is none.
std::optional<BlockFormat> parse_block_format(std::string_view text);

/// The formats that a word for a width alone may mean: "nvfp4 or mxfp4" for "fp4"; "" for other words.
std::string_view formats_of_width(std::string_view text);

/// values[0, n), n ≤ traits(f).block, a block of `f`, in place: rounded to element × scale.
/// mx: the scale is 2^(⌊log2 amax⌋ − max_exp), at least 2^-127; elements are rounded to nearest even and
/// saturate. nvfp4: the scale is e4m3(amax / 6 / tensor_scale) × tensor_scale, elements likewise; the result
/// leaves tensor_scale out, so that the product is to be multiplied by it. A block with a value that is not
/// finite becomes NaN, a block of zeros zeros.
void round_block(BlockFormat f, float* values, std::size_t n, float tensor_scale = 1);

/// Rows of blocks: row[0, n) in blocks from its first element on. The bits of round_block.
void round_blocks(BlockFormat f, float* row, std::size_t n, float tensor_scale = 1,
                  SimdTarget target = kBestTarget);

/// nvfp4's tensor scale for a largest magnitude: amax / (6 · 448); 1 where amax is 0 or not finite.
float nvfp4_tensor_scale(float amax);

/// Sets the scale of a tensor whose largest magnitude is `amax`: of nvfp4's blocks, else of values that are
/// rounded to `element`.
void set_scale(TensorScale& scale, bool nvfp4, Scalar element, float amax, int margin);

/// Whose magnitude the scale called `name` is made from, if a model keeps it: the tensor and its element, as
/// in "model.layers.0.mlp.up_proj.weight:e4m3", without the margin that may stand behind (":2"), which
/// changes no magnitude. Empty for gradients (".grad:"), whose magnitudes go with the batch and the loss
/// scale.
std::string_view kept_magnitude(std::string_view name);

/// What a tensor is multiplied by before it is rounded to `element`: largest finite value / amax / 2^margin
/// (Transformer Engine's formula); 1 where amax is 0 or not finite.
float tensor_scale(Scalar element, float amax, int margin);

}  // namespace mantissa
