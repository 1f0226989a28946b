// Matrices in quantized blocks: those of GGUF files, and int8 and nf4, in which a training run holds frozen
// weights.
//
// Sources: ggml-quants.h and ggml-quants.c of ggml (github.com/ggml-org/ggml); LLM.int8(), arXiv:2208.07339;
// QLoRA, arXiv:2305.14314.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "mantissa/core/numeric/quant_codes.h"
#include "mantissa/core/numeric/simd_target.h"

namespace mantissa {

enum class QuantFormat : std::uint8_t { q4_0, q4_1, q5_0, q5_1, q8_0, int8, nf4, nf4_double };

/// Rows of a format with scales in its blocks are blocks of 32 elements, whose f16 scale, and minimum if
/// there is one, precede the codes. A value is scale · (code − zero), or scale · code + minimum. Codes of 4
/// and 5 bits: byte i of the last 16 has the low four bits of element i in its low half and those of element
/// i + 16 in its upper half. Bit i of the four bytes before them is the fifth bit of element i. Codes of 8
/// bits are signed.
///
/// The other formats are the codes of all rows, followed by their scales (quant_scales_begin()). A value is
/// scale · number(code), rounded once to f32.
/// - int8: signed codes. Scales: one f32 number for each row.
/// - nf4: byte i of a row has the code of element 2 i in its upper half and that of element 2 i + 1 in its
/// low
///   half, as in bitsandbytes; numbers are kNormalFloat4. Scales: one f32 number for every 64 elements.
/// - nf4_double: the same with scales of 8 bits: the f32 mean of the scales, and for every 256 scales an f32
///   number, the group's scale, and the codes of their differences from the mean. A scale is kDynamicCodes[
///   code] · group + mean in f32, with both roundings. The last group is shorter if fewer are left.
struct QuantTraits {
  std::string_view name;
  std::size_t bytes;  // of 32 elements, with their scale if it lies in the block
  std::size_t codes;  // bytes before the codes
  int code_bits;
  int zero;
  bool minimum;
  std::size_t per_scale = 0;  // elements of a row that share a scale; 0: the whole row
  bool apart = false;         // scales follow the codes of all rows
};

inline constexpr QuantFormat kQuantFormats[] = {QuantFormat::q4_0, QuantFormat::q4_1,      QuantFormat::q5_0,
                                                QuantFormat::q5_1, QuantFormat::q8_0,      QuantFormat::int8,
                                                QuantFormat::nf4,  QuantFormat::nf4_double};

/// Elements of a block of formats with scales in their blocks. Kernels read codes of other formats in pieces
/// of as many.
inline constexpr std::size_t kQuantBlock = 32;
/// Elements that share a scale of nf4, and scales that share a group under double quantization.
inline constexpr std::size_t kNormalFloatBlock = 64, kScaleGroup = 256;

constexpr QuantTraits traits(QuantFormat f) {
  constexpr QuantTraits kTable[] = {
      {"q4_0", 18, 2, 4, 8, false, kQuantBlock},
      {"q4_1", 20, 4, 4, 0, true, kQuantBlock},
      {"q5_0", 22, 6, 5, 16, false, kQuantBlock},
      {"q5_1", 24, 8, 5, 0, true, kQuantBlock},
      {"q8_0", 34, 2, 8, 0, false, kQuantBlock},
      {"int8", 32, 0, 8, 0, false, 0, true},
      {"nf4", 16, 0, 4, 0, false, kNormalFloatBlock, true},
      {"nf4-double", 16, 0, 4, 0, false, kNormalFloatBlock, true},
  };
  return kTable[static_cast<std::size_t>(f)];
}

/// Returns true if codes are of kNormalFloat4.
constexpr bool is_normal_float(QuantFormat f) {
  return f == QuantFormat::nf4 || f == QuantFormat::nf4_double;
}

/// Returns true if a row may have `width` elements: whole blocks.
constexpr bool takes_width(QuantFormat f, std::size_t width) {
  return traits(f).per_scale == 0 || width % traits(f).per_scale == 0;
}

/// Returns the bytes of `elements` of whole blocks, or of codes.
constexpr std::size_t quant_bytes(QuantFormat f, std::size_t elements) {
  return elements % kQuantBlock == 0 ? elements / kQuantBlock * traits(f).bytes
                                     : elements * static_cast<std::size_t>(traits(f).code_bits) / 8;
}

/// Returns the bytes from the first code of a matrix to its scales, if they lie apart.
constexpr std::size_t quant_scales_begin(QuantFormat f, std::size_t rows, std::size_t width) {
  constexpr std::size_t kAlignment = 64;
  return (quant_bytes(f, rows * width) + kAlignment - 1) / kAlignment * kAlignment;
}

/// Returns the number of scales of a matrix of a format whose scales lie apart.
constexpr std::size_t quant_scales(QuantFormat f, std::size_t rows, std::size_t width) {
  return traits(f).per_scale == 0 ? rows : rows * width / traits(f).per_scale;
}

/// Returns the bytes of a matrix with its scales.
constexpr std::size_t quant_bytes(QuantFormat f, std::size_t rows, std::size_t width) {
  if (!traits(f).apart) return quant_bytes(f, rows * width);
  const std::size_t begin = quant_scales_begin(f, rows, width), scales = quant_scales(f, rows, width);
  if (f != QuantFormat::nf4_double) return begin + scales * sizeof(float);
  return begin + sizeof(float) * (1 + (scales + kScaleGroup - 1) / kScaleGroup) + scales;
}

/// Rows of a matrix in quantized blocks.
struct QuantRows {
  QuantFormat format = QuantFormat::q8_0;
  std::size_t width = 0;                 // elements of a row
  const std::uint8_t* blocks = nullptr;  // or codes, of the first row
  const std::uint8_t* scales = nullptr;  // that lie apart, of the first row

  QuantRows() = default;
  QuantRows(QuantFormat f, std::size_t w, const void* first, const void* apart)
      : format(f),
        width(w),
        blocks(static_cast<const std::uint8_t*>(first)),
        scales(static_cast<const std::uint8_t*>(apart)) {}
};

/// Returns rows of a matrix [rows, width] at `data`.
inline QuantRows quant_rows(QuantFormat f, const void* data, std::size_t rows, std::size_t width) {
  const auto* first = static_cast<const std::uint8_t*>(data);
  return {f, width, first, traits(f).apart ? first + quant_scales_begin(f, rows, width) : nullptr};
}

/// Returns the scale of element `at` of a row, if scales lie apart.
inline float quant_scale(const QuantRows& m, std::size_t row, std::size_t at) {
  const auto number = [](const std::uint8_t* from) {
    float x = 0;
    std::memcpy(&x, from, sizeof x);
    return x;
  };
  if (m.format == QuantFormat::int8) return number(m.scales + row * sizeof(float));
  const std::size_t i = (row * m.width + at) / kNormalFloatBlock;
  if (m.format == QuantFormat::nf4) return number(m.scales + i * sizeof(float));
  const std::uint8_t* group = m.scales + sizeof(float) + i / kScaleGroup * (sizeof(float) + kScaleGroup);
  const float difference = kDynamicCodes[group[sizeof(float) + i % kScaleGroup]] * number(group);
  return difference + number(m.scales);
}

/// Writes elements [begin, begin + n) of a row, computed in f32. With scales in the blocks, products are
/// exact, as a scale has 11 significant bits and a code at most 8; only the addition of the minimum rounds,
/// once, and all values are multiples of 2^-24, as f16 values are. Reads only the blocks that contain these
/// elements.
void dequantize(const QuantRows& m, std::size_t row, std::size_t begin, std::size_t n, float* values,
                SimdTarget target = kBestTarget);

/// Returns the index of the first block of `bytes` whose scale or minimum is not finite, or the number of
/// blocks. The values of all other blocks are finite. Requires scales in the blocks.
std::size_t first_nonfinite_block(QuantFormat f, std::span<const std::uint8_t> bytes);

}  // namespace mantissa
