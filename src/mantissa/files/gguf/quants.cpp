#include "mantissa/files/gguf/quants.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/quantize_blocks.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/files/gguf/k_quants.h"

namespace mantissa::gguf {
namespace {

constexpr int kSmall = 32;  // elements of a block of Q4_0 … Q8_0

std::uint8_t byte_at(const std::byte* p, int i) {
  return std::to_integer<std::uint8_t>(p[i]);
}

float half_at(const std::byte* p) {
  float value = 0;
  load_row(p, Scalar::f16, 0, 1, &value);
  return value;
}

std::uint32_t word_at(const std::byte* p) {
  std::uint32_t word = 0;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

float of_code(int code) {
  return static_cast<float>(code);
}

// Blocks of 32: the low nibbles are the first 16 codes and the high nibbles the others. Bit i of `high` is
// the fifth bit of code i.

void block_q4_0(const std::byte* p, float* out) {
  const float d = half_at(p);
  for (int i = 0; i < kSmall / 2; ++i) {
    const int q = byte_at(p, 2 + i);
    out[i] = of_code((q & 15) - 8) * d;
    out[i + kSmall / 2] = of_code((q >> 4) - 8) * d;
  }
}

void block_q4_1(const std::byte* p, float* out) {
  const float d = half_at(p), m = half_at(p + 2);
  for (int i = 0; i < kSmall / 2; ++i) {
    const int q = byte_at(p, 4 + i);
    out[i] = of_code(q & 15) * d + m;
    out[i + kSmall / 2] = of_code(q >> 4) * d + m;
  }
}

int fifth_bit(std::uint32_t high, int i) {
  return static_cast<int>((high >> i) & 1U) << 4;
}

void block_q5_0(const std::byte* p, float* out) {
  const float d = half_at(p);
  const std::uint32_t high = word_at(p + 2);
  for (int i = 0; i < kSmall / 2; ++i) {
    const int q = byte_at(p, 6 + i);
    out[i] = of_code(((q & 15) | fifth_bit(high, i)) - 16) * d;
    out[i + kSmall / 2] = of_code(((q >> 4) | fifth_bit(high, i + kSmall / 2)) - 16) * d;
  }
}

void block_q5_1(const std::byte* p, float* out) {
  const float d = half_at(p), m = half_at(p + 2);
  const std::uint32_t high = word_at(p + 4);
  for (int i = 0; i < kSmall / 2; ++i) {
    const int q = byte_at(p, 8 + i);
    out[i] = of_code((q & 15) | fifth_bit(high, i)) * d + m;
    out[i + kSmall / 2] = of_code((q >> 4) | fifth_bit(high, i + kSmall / 2)) * d + m;
  }
}

void block_q8_0(const std::byte* p, float* out) {
  const float d = half_at(p);
  for (int i = 0; i < kSmall; ++i) out[i] = of_code(static_cast<std::int8_t>(byte_at(p, 2 + i))) * d;
}

/// A scale of 8 bits, the exponent of a power of two; then codes of e2m1 as in Q4_0. Products are exact.
void block_mxfp4(const std::byte* p, float* out) {
  static constexpr float kMagnitudes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  const float d = std::ldexp(1.0F, byte_at(p, 0) - 127);
  // ggml has no negative zero.
  const auto value = [d](int code) {
    return ((code & 8) != 0 ? 0 - kMagnitudes[code & 7] : kMagnitudes[code & 7]) * d;
  };
  for (int i = 0; i < kSmall / 2; ++i) {
    const int q = byte_at(p, 1 + i);
    out[i] = value(q & 15);
    out[i + kSmall / 2] = value(q >> 4);
  }
}

// Blocks of 256, the K types: groups of 16 or 32 elements have scales and minima of their own.

void block_q2_k(const std::byte* p, float* out) {
  const std::byte *scales = p, *codes = p + 16;
  const float d = half_at(p + 80), least = half_at(p + 82);
  for (int group = 0; group < 16; ++group) {
    const int packed = byte_at(scales, group);
    const float scale = d * of_code(packed & 15), minimum = least * of_code(packed >> 4);
    const std::byte* from = codes + 32 * (group / 8) + 16 * (group % 2);
    const int shift = 2 * (group / 2 % 4);
    for (int i = 0; i < 16; ++i)
      out[16 * group + i] = scale * of_code((byte_at(from, i) >> shift) & 3) - minimum;
  }
}

/// Returns scale `group` of Q3_K: four low bits in the first 8 bytes, two high bits in the last 4.
int scale_of_q3_k(const std::byte* scales, int group) {
  const int low = byte_at(scales, group % 8) >> (group < 8 ? 0 : 4);
  const int high = byte_at(scales, 8 + group % 4) >> (2 * (group / 4));
  return ((low & 15) | (high & 3) << 4) - 32;
}

void block_q3_k(const std::byte* p, float* out) {
  const std::byte *high = p, *codes = p + 32, *scales = p + 96;
  const float d = half_at(p + 108);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * of_code(scale_of_q3_k(scales, group));
    const int half = 16 * (group % 2), shift = 2 * (group / 2 % 4), bit = group / 2;
    const std::byte* from = codes + 32 * (group / 8) + half;
    for (int i = 0; i < 16; ++i) {
      const int lowered = (byte_at(high, half + i) >> bit) & 1 ? 0 : 4;
      out[16 * group + i] = scale * of_code(((byte_at(from, i) >> shift) & 3) - lowered);
    }
  }
}

struct ScaleAndMinimum {
  int scale = 0, minimum = 0;
};

/// Returns the 6-bit scale and minimum of group 0 … 7 of Q4_K and Q5_K.
ScaleAndMinimum scale_of_q4_k(const std::byte* s, int group) {
  if (group < 4) return {byte_at(s, group) & 63, byte_at(s, group + 4) & 63};
  const int low = byte_at(s, group + 4);
  return {(low & 15) | (byte_at(s, group - 4) >> 6) << 4, (low >> 4) | (byte_at(s, group) >> 6) << 4};
}

void block_q4_k(const std::byte* p, float* out) {
  const float d = half_at(p), least = half_at(p + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMinimum s = scale_of_q4_k(p + 4, group);
    const float scale = d * of_code(s.scale), minimum = least * of_code(s.minimum);
    const std::byte* from = p + 16 + 32 * (group / 2);
    for (int i = 0; i < 32; ++i) {
      const int q = byte_at(from, i) >> (group % 2 == 0 ? 0 : 4) & 15;
      out[32 * group + i] = scale * of_code(q) - minimum;
    }
  }
}

void block_q5_k(const std::byte* p, float* out) {
  const float d = half_at(p), least = half_at(p + 2);
  const std::byte* high = p + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMinimum s = scale_of_q4_k(p + 4, group);
    const float scale = d * of_code(s.scale), minimum = least * of_code(s.minimum);
    const std::byte* from = p + 48 + 32 * (group / 2);
    for (int i = 0; i < 32; ++i) {
      const int q = byte_at(from, i) >> (group % 2 == 0 ? 0 : 4) & 15;
      out[32 * group + i] = scale * of_code(q | ((byte_at(high, i) >> group) & 1) << 4) - minimum;
    }
  }
}

void block_q6_k(const std::byte* p, float* out) {
  const std::byte *low = p, *high = p + 128, *scales = p + 192;
  const float d = half_at(p + 208);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * of_code(static_cast<std::int8_t>(byte_at(scales, group)));
    const int part = group / 8, quarter = group / 2 % 4, half = 16 * (group % 2);
    const std::byte* from = low + 64 * part + 32 * (quarter % 2) + half;
    for (int i = 0; i < 16; ++i) {
      const int four = byte_at(from, i) >> (quarter < 2 ? 0 : 4) & 15;
      const int two = byte_at(high, 32 * part + half + i) >> (2 * quarter) & 3;
      out[16 * group + i] = scale * of_code((four | two << 4) - 32);
    }
  }
}

using BlockReader = void (*)(const std::byte*, float*);

BlockReader reader_of(TensorType type) {
  switch (type) {
    case TensorType::q4_0:
      return block_q4_0;
    case TensorType::q4_1:
      return block_q4_1;
    case TensorType::q5_0:
      return block_q5_0;
    case TensorType::q5_1:
      return block_q5_1;
    case TensorType::q8_0:
      return block_q8_0;
    case TensorType::mxfp4:
      return block_mxfp4;
    case TensorType::q2_k:
      return block_q2_k;
    case TensorType::q3_k:
      return block_q3_k;
    case TensorType::q4_k:
      return block_q4_k;
    case TensorType::q5_k:
      return block_q5_k;
    case TensorType::q6_k:
      return block_q6_k;
    default:
      throw InternalError("a tensor type has no blocks");
  }
}

Scalar scalar_of(TensorType type) {
  switch (type) {
    case TensorType::f64:
      return Scalar::f64;
    case TensorType::f16:
      return Scalar::f16;
    case TensorType::bf16:
      return Scalar::bf16;
    default:
      return Scalar::f32;
  }
}

}  // namespace

void dequantize(TensorType type, const std::byte* stored, std::size_t blocks, float* out) {
  const TypeTraits& t = traits(type);
  if (t.plain) return load_row(stored, scalar_of(type), 0, blocks, out);
  const BlockReader read = reader_of(type);
  for (std::size_t b = 0; b < blocks; ++b) read(stored + b * t.bytes, out + b * t.block);
}

namespace {

bool quantize_mxfp4(const float* values, std::size_t n, std::byte* out) {
  constexpr std::uint8_t kCodes[] = {0, 1, 2, 3, 4, 0, 5, 0, 6, 0, 0, 0, 7};  // by twice the magnitude
  constexpr int kLeast = -127;
  for (std::size_t b = 0; b < n / kSmall; ++b, values += kSmall, out += traits(TensorType::mxfp4).bytes) {
    float largest = 0;
    for (int i = 0; i < kSmall; ++i) {
      if (!std::isfinite(values[i])) return false;
      largest = std::max(largest, std::abs(values[i]));
    }
    const int exponent =
        largest == 0 ? kLeast
                     : std::max(std::ilogb(largest) - mantissa::traits(BlockFormat::mxfp4).max_exp, kLeast);
    float rounded[kSmall];
    std::copy_n(values, kSmall, rounded);
    round_blocks(BlockFormat::mxfp4, rounded, kSmall);
    const auto code = [&](float x) {
      const auto twice = static_cast<std::size_t>(std::ldexp(std::abs(x), 1 - exponent));
      return static_cast<std::uint8_t>(kCodes[twice] | (x < 0 ? 8 : 0));
    };
    out[0] = static_cast<std::byte>(exponent - kLeast);
    for (int i = 0; i < kSmall / 2; ++i)
      out[1 + i] = static_cast<std::byte>(code(rounded[i]) | code(rounded[i + kSmall / 2]) << 4);
  }
  return true;
}

}  // namespace

std::string written_types() {
  std::string names;
  for (const TensorType type : kWrittenTypes)
    names += (names.empty()                                         ? ""
              : type == kWrittenTypes[std::size(kWrittenTypes) - 1] ? " or "
                                                                    : ", ") +
             lower_name(traits(type));
  return names;
}

bool quantize(TensorType type, const float* values, std::size_t n, std::byte* out) {
  if (type == TensorType::mxfp4) return quantize_mxfp4(values, n, out);
  if (is_k_type(type)) return quantize_k(type, values, n, out);
  const std::optional<QuantFormat> format = quant_format(type);
  if (format != QuantFormat::q4_0 && format != QuantFormat::q8_0)
    throw InternalError("a tensor type is not written");
  return quantize_blocks(*format, values, n, reinterpret_cast<std::uint8_t*>(out)) == n / kSmall;
}

}  // namespace mantissa::gguf
