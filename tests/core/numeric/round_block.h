// The rounding of one block of a format with scales as core/numeric/scaled.h defines it, one value at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "mantissa/core/numeric/round.h"
#include "mantissa/core/numeric/scaled.h"

namespace mantissa::testing {

/// Rounds to the nearest element value of the format, ties to even, saturating at the largest.
inline float round_element(const BlockTraits& t, float y) {
  int exponent = 0;
  std::frexp(y, &exponent);  // |y| in [2^(exponent − 1), 2^exponent)
  const double step = std::ldexp(1.0, std::max(exponent - 1, t.min_normal_exp) - t.mantissa_bits);
  const double rounded = std::nearbyint(static_cast<double>(y) / step) * step;
  return static_cast<float>(std::copysign(std::min(std::abs(rounded), t.max_finite), y));
}

/// Rounds to an element below or above, by 32 random bits, saturating at the largest.
inline float round_element(const BlockTraits& t, float y, std::uint32_t random) {
  int exponent = 0;
  std::frexp(y, &exponent);
  const double step = std::ldexp(1.0, std::max(exponent - 1, t.min_normal_exp) - t.mantissa_bits);
  const double steps = std::abs(static_cast<double>(y)) / step, whole = std::floor(steps);
  const bool up = std::floor((steps - whole) * 0x1p32) > static_cast<double>(random);
  return static_cast<float>(std::copysign(std::min((whole + (up ? 1 : 0)) * step, t.max_finite), y));
}

/// Returns the exponent of a power-of-two scale of elements with a largest magnitude `amax`, by the formulas
/// of ScaleRounding in f64; 1000 if there is none.
inline int scale_exponent(const BlockTraits& t, float amax, ScaleRounding rounding) {
  if (amax == 0) return -127;
  int exponent = 0;
  const double mantissa = 2 * std::frexp(static_cast<double>(amax), &exponent);  // in [1, 2)
  --exponent;
  switch (rounding) {
    case ScaleRounding::floor:
    case ScaleRounding::none:  // has no power of two
      break;
    case ScaleRounding::ceil:
      exponent += mantissa > 1 ? 1 : 0;
      break;
    case ScaleRounding::even:
      exponent += mantissa >= 2 - std::ldexp(0.5, -t.mantissa_bits) ? 1 : 0;
      if (exponent > 127) return 1000;
      break;
    case ScaleRounding::rceil: {
      const float fit = amax * (1 / static_cast<float>(t.max_finite));
      const double of_fit = 2 * std::frexp(static_cast<double>(fit), &exponent);
      return fit == 0 ? -127 : std::max(exponent - (of_fit > 1 ? 0 : 1), -127);
    }
  }
  return std::max(exponent - t.max_exp, -127);
}

/// Rounds values[0, n), n ≤ traits(f).block.
inline void round_block(BlockFormat f, float* values, std::size_t n, float tensor_scale = 1,
                        ScaleRounding rounding = ScaleRounding::floor) {
  const BlockTraits t = traits(f);
  float amax = 0;
  bool finite = true;
  for (std::size_t i = 0; i < n; ++i) {
    finite = finite && std::isfinite(values[i]);
    amax = std::max(amax, std::abs(values[i]));
  }
  float scale = std::numeric_limits<float>::quiet_NaN(), whole = scale;
  if (finite && t.power_of_two_scale && rounding == ScaleRounding::none) {
    scale = whole = amax / static_cast<float>(t.max_finite);
  } else if (finite && t.power_of_two_scale) {
    const int exponent = scale_exponent(t, amax, rounding);
    if (exponent < 1000) scale = whole = std::ldexp(1.0F, exponent);
  } else if (finite) {
    const float most = amax / static_cast<float>(t.max_finite) / tensor_scale;
    scale = static_cast<float>(round_to(most, Scalar::e4m3, {.saturate = true}));
    whole = scale * tensor_scale;
  }
  for (std::size_t i = 0; i < n; ++i)
    values[i] = scale == 0 ? std::copysign(0.0F, values[i]) : round_element(t, values[i] / whole) * scale;
}

}  // namespace mantissa::testing
