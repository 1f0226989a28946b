#include "mantissa/files/io/widen.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "mantissa/core/base/error_text.h"

namespace mantissa::io {
namespace {

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU, mantissa = bits & 0x3ffU;
  if (exponent == 0) {  // zero and subnormals: mantissa × 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t biased = exponent == 31 ? 255U : exponent + (127 - 15);
  return std::bit_cast<float>(sign | biased << 23 | mantissa << 13);
}

template <class Stored, class T, class F>
void convert(std::span<const std::byte> stored, std::span<T> out, F f) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, stored.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = static_cast<T>(f(value));
  }
}

template <class T>
void widen_to(std::span<const std::byte> stored, Dtype dtype, std::span<T> out) {
  switch (dtype) {
    case Dtype::f64:
      return convert<double>(stored, out, [](double value) { return value; });
    case Dtype::f32:
      return convert<float>(stored, out, [](float value) { return value; });
    case Dtype::bf16:
      return convert<std::uint16_t>(stored, out, from_bf16);
    case Dtype::f16:
      return convert<std::uint16_t>(stored, out, from_f16);
    default:
      throw DtypeError("{} values are not read as floating-point numbers", safetensors_name(dtype));
  }
}

}  // namespace

bool is_readable_float(Dtype dtype) {
  return dtype == Dtype::f64 || dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16;
}

void widen(std::span<const std::byte> stored, Dtype dtype, std::span<float> out) {
  widen_to(stored, dtype, out);
}
void widen(std::span<const std::byte> stored, Dtype dtype, std::span<double> out) {
  widen_to(stored, dtype, out);
}

}  // namespace mantissa::io
