// Formats of 8 and 4 bits whose elements share scales: their rounding, applied to f32 values. Plain formats
// hold the products of elements and scales exactly.
//
// Sources: OCP Microscaling Formats (MX) Specification 1.0 (2023) for mxfp8, mxfp6 and mxfp4; torchao for the
// rules by which their scales are rounded; NVIDIA's description of NVFP4 in Transformer Engine and TensorRT
// Model Optimizer for nvfp4; NVIDIA Transformer Engine for tensor scales.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/simd_target.h"

namespace mantissa {

/// The scale of one tensor during a step.
struct TensorScale {
  float scale = 1;        // multiplies values before rounding; nvfp4: divides them
  float unscale = 1;      // multiplies rounded values to restore the tensor's magnitude
  float amax = 0;         // the largest magnitude since the step began
  bool recording = true;  // whether amax is updated: false in validation
};

/// Formats whose elements share a scale per block.
enum class BlockFormat : std::uint8_t { mxfp8, mxfp8_e5m2, mxfp6_e2m3, mxfp6_e3m2, mxfp4, nvfp4 };

/// The rule by which the scale of an mx block, a power of two except under `none`, follows from the block's
/// largest magnitude amax, where max_exp and max_finite are those of the elements:
///   floor: 2^(⌊log2 amax⌋ − max_exp), as the OCP text has it;
///   ceil:  2^(⌈log2 amax⌉ − max_exp);
///   even:  floor of amax after rounding to the elements' mantissa, halves away from zero;
///   rceil: the least power of two that is at least amax · f32(1 / max_finite). Elements never saturate;
///   none:  amax / max_finite in f32, as DeepSeek-V3 has it. Elements round x / scale, and element × scale
///          rounds to f32. A block whose scale is zero becomes zero.
enum class ScaleRounding : std::uint8_t { floor, ceil, even, rceil, none };

/// A length of BlockScaling: all elements along the sum share a scale.
inline constexpr std::int32_t kWholeSum = -1;

/// The elements that share a scale, and how that scale is rounded. Blocks and squares start at the first row
/// and column of a matrix; those along tokens at the first token of each row of a batch.
struct BlockScaling {
  ScaleRounding rounding = ScaleRounding::floor;  // of mx scales
  std::int32_t length = 0;  // elements along the sum, a multiple of the block, or kWholeSum; 0: one block
  bool square = false;      // and as many across it
  friend bool operator==(const BlockScaling&, const BlockScaling&) = default;
};

/// The most elements along a sum that share a scale, besides kWholeSum.
inline constexpr std::size_t kLongestScale = 128;

struct BlockTraits {
  std::string_view name;
  std::int32_t block;       // elements per scale
  int mantissa_bits;        // of an element
  int min_normal_exp;       // of an element; its subnormals follow
  double max_finite;        // of an element
  int max_exp;              // of an element
  bool power_of_two_scale;  // e8m0 scales; else e4m3 scales under one f32 scale per tensor
  int element_bits;         // of a stored element
};

inline constexpr BlockFormat kBlockFormats[] = {BlockFormat::mxfp8,      BlockFormat::mxfp8_e5m2,
                                                BlockFormat::mxfp6_e2m3, BlockFormat::mxfp6_e3m2,
                                                BlockFormat::mxfp4,      BlockFormat::nvfp4};

/// Elements are e4m3 in mxfp8, e5m2 in mxfp8-e5m2, e2m3 or e3m2 in mxfp6, and e2m1 in mxfp4 and nvfp4. Those
/// of 6 bits are stored as the codes of e4m3, which has all their values.
constexpr BlockTraits traits(BlockFormat f) {
  constexpr BlockTraits kTable[] = {
      {"mxfp8", 32, 3, -6, 448, 8, true, 8},  // one a line
      {"mxfp8-e5m2", 32, 2, -14, 57344, 15, true, 8},
      {"mxfp6-e2m3", 32, 3, 0, 7.5, 2, true, 8},
      {"mxfp6-e3m2", 32, 2, -2, 28, 4, true, 8},
      {"mxfp4", 32, 1, 0, 6, 2, true, 4},
      {"nvfp4", 16, 1, 0, 6, 2, false, 4},
  };
  return kTable[static_cast<std::size_t>(f)];
}

/// The most elements of a block of any format.
inline constexpr std::size_t kLongestBlock = [] {
  std::int32_t most = 0;
  for (const BlockFormat f : kBlockFormats) most = std::max(most, traits(f).block);
  return static_cast<std::size_t>(most);
}();

/// Returns the format with the name `text` ("mxfp4", in any letter case), or null.
std::optional<BlockFormat> parse_block_format(std::string_view text);

/// Returns the formats that a word for a width alone may mean: "nvfp4 or mxfp4" for "fp4"; "" for other
/// words.
std::string_view formats_of_width(std::string_view text);

/// Rounds row[0, n) in blocks of traits(f).block, the first of which starts at row[0], to element × scale, in
/// place.
/// mx: the scale is given by `rounding` (ScaleRounding), at least 2^-127 if it is a power of two. Elements
/// round to nearest even and saturate. nvfp4: the scale is e4m3(amax / 6 / tensor_scale) × tensor_scale, and
/// elements round the same way. The result omits the factor tensor_scale; the caller multiplies the product
/// by it. A block with a value that is not finite becomes NaN. A block of zeros stays zero.
void round_blocks(BlockFormat f, float* row, std::size_t n, float tensor_scale = 1,
                  SimdTarget target = kBestTarget, ScaleRounding rounding = ScaleRounding::floor);

/// Returns the nvfp4 tensor scale for a largest magnitude: amax / (6 · 448), or 1 if amax is 0 or not finite.
float nvfp4_tensor_scale(float amax);

/// Sets the scale of a tensor whose largest magnitude is `amax`, for nvfp4 blocks or for values rounded to
/// `element`.
void set_scale(TensorScale& scale, bool nvfp4, Scalar element, float amax, int margin);

/// Returns the key under which a model stores the magnitude behind the scale `name`: the tensor and its
/// element, as in "model.layers.0.mlp.up_proj.weight:e4m3". Removes a trailing margin (":2"), which does not
/// change the magnitude. Returns "" for gradients (".grad:"): their magnitudes depend on the batch and the
/// loss scale, so models do not store them.
std::string_view kept_magnitude(std::string_view name);

/// Returns the factor that a tensor is multiplied by before rounding to `element`: largest finite value /
/// amax / 2^margin (Transformer Engine's formula), or 1 if amax is 0 or not finite.
float tensor_scale(Scalar element, float amax, int margin);

}  // namespace mantissa
