// Quantised weights as GGUF files store them: blocks of 32 elements of a row, whose f16 scale, and minimum if
// there is one, precede the codes.
//
// Source: ggml-quants.h and ggml-quants.c of ggml (github.com/ggml-org/ggml).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "mantissa/numeric/simd_target.h"

namespace mantissa {

enum class QuantFormat : std::uint8_t { q4_0, q4_1, q5_0, q5_1, q8_0 };

/// A value is scale · (code − zero), or scale · code + minimum. Codes of 4 and 5 bits: byte i of the last 16
/// has the low four bits of element i in its low half and those of element i + 16 in its upper half. Bit i of
/// the four bytes before them is the fifth bit of element i. Codes of 8 bits are signed.
struct QuantTraits {
  std::string_view name;
  std::size_t bytes;  // of a block
  std::size_t codes;  // bytes before the codes
  int code_bits;
  int zero;
  bool minimum;
};

inline constexpr QuantFormat kQuantFormats[] = {QuantFormat::q4_0, QuantFormat::q4_1, QuantFormat::q5_0,
                                                QuantFormat::q5_1, QuantFormat::q8_0};

/// Elements of a block of any of these formats.
inline constexpr std::size_t kQuantBlock = 32;

constexpr QuantTraits traits(QuantFormat f) {
  constexpr QuantTraits kTable[] = {
      {"q4_0", 18, 2, 4, 8, false}, {"q4_1", 20, 4, 4, 0, true},  {"q5_0", 22, 6, 5, 16, false},
      {"q5_1", 24, 8, 5, 0, true},  {"q8_0", 34, 2, 8, 0, false},
  };
  return kTable[static_cast<std::size_t>(f)];
}

/// Returns the bytes of the whole blocks of `elements`.
constexpr std::size_t quant_bytes(QuantFormat f, std::size_t elements) {
  return elements / kQuantBlock * traits(f).bytes;
}

/// Writes elements [begin, begin + n) of the blocks from `blocks` on, computed in f32. Products are exact, as
/// a scale has 11 significant bits and a code at most 8. Only the addition of the minimum rounds, once. Reads
/// only the blocks that contain these elements. All values are multiples of 2^-24, as f16 values are.
void dequantize(QuantFormat f, const std::uint8_t* blocks, std::size_t begin, std::size_t n, float* values,
                SimdTarget target = kBestTarget);

/// Returns the index of the first block of `bytes` whose scale or minimum is not finite, or the number of
/// blocks. The values of all other blocks are finite.
std::size_t first_nonfinite_block(QuantFormat f, std::span<const std::uint8_t> bytes);

}  // namespace mantissa
