#include "mantissa/core/numeric/quantize_blocks.h"

#include <algorithm>
#include <cmath>

#include "mantissa/core/numeric/convert.h"

namespace mantissa {
namespace {

/// Returns 1 / scale, or 0 for a scale of zero or one whose inverse overflows: the f16 scale of such a block
/// is zero, and so are its values.
float inverse_of(float scale) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  return std::isfinite(inverse) ? inverse : 0;
}

/// Returns the first value of the largest magnitude, or NaN if one is not finite.
float largest_of(const float* x) {
  float largest = 0, sum = 0;
  for (std::size_t i = 0; i < kQuantBlock; ++i) {
    sum += x[i] * 0;  // NaN if x[i] is not finite
    largest = std::abs(x[i]) > std::abs(largest) ? x[i] : largest;
  }
  return largest + sum;
}

/// Writes the f16 scale of a block. Returns false if it is not finite.
bool write_scale(float scale, std::uint8_t* to) {
  store_row(&scale, 1, to, Scalar::f16, 0);
  float stored = 0;
  load_row(to, Scalar::f16, 0, 1, &stored);
  return std::isfinite(stored);
}

bool quantize_q4_0(const float* x, std::uint8_t* to) {
  constexpr std::size_t kHalf = kQuantBlock / 2;
  const float scale = largest_of(x) / -8, inverse = inverse_of(scale);
  if (!write_scale(scale, to)) return false;
  const auto code = [inverse](float value) {
    return static_cast<std::uint8_t>(std::min(static_cast<int>(value * inverse + 8.5F), 15));
  };
  for (std::size_t i = 0; i < kHalf; ++i)
    to[2 + i] = static_cast<std::uint8_t>(code(x[i]) | code(x[i + kHalf]) << 4);
  return true;
}

/// Rounds to the nearest integer, halves away from zero. |x| is below 2^31.
int round_away(float x) {
  const int whole = static_cast<int>(x);
  const float rest = x - static_cast<float>(whole);
  return whole + (rest >= 0.5F ? 1 : 0) - (rest <= -0.5F ? 1 : 0);
}

bool quantize_q8_0(const float* x, std::uint8_t* to) {
  const float scale = std::abs(largest_of(x)) / 127, inverse = inverse_of(scale);
  if (!write_scale(scale, to)) return false;
  for (std::size_t i = 0; i < kQuantBlock; ++i)
    to[2 + i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(round_away(x[i] * inverse)));
  return true;
}

}  // namespace

std::size_t quantize_blocks(QuantFormat f, const float* values, std::size_t n, std::uint8_t* out) {
  const auto quantize = f == QuantFormat::q4_0 ? quantize_q4_0 : quantize_q8_0;
  const std::size_t blocks = n / kQuantBlock;
  for (std::size_t b = 0; b < blocks; ++b) {
    if (!quantize(values + b * kQuantBlock, out + b * traits(f).bytes)) return b;
  }
  return blocks;
}

}  // namespace mantissa
