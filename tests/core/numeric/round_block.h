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

/// Rounds values[0, n), n ≤ traits(f).block.
inline void round_block(BlockFormat f, float* values, std::size_t n, float tensor_scale = 1) {
  const BlockTraits t = traits(f);
  float amax = 0;
  bool finite = true;
  for (std::size_t i = 0; i < n; ++i) {
    finite = finite && std::isfinite(values[i]);
    amax = std::max(amax, std::abs(values[i]));
  }
  float scale = std::numeric_limits<float>::quiet_NaN(), whole = scale;
  if (finite && t.power_of_two_scale) {
    int exponent = -1000;
    if (amax > 0) std::frexp(amax, &exponent);
    scale = whole = std::ldexp(1.0F, std::max(exponent - 1 - t.max_exp, -127));
  } else if (finite) {
    const float most = amax / static_cast<float>(t.max_finite) / tensor_scale;
    scale = static_cast<float>(round_to(most, Scalar::e4m3, {.saturate = true}));
    whole = scale * tensor_scale;
  }
  for (std::size_t i = 0; i < n; ++i)
    values[i] = scale == 0 ? std::copysign(0.0F, values[i]) : round_element(t, values[i] / whole) * scale;
}

}  // namespace mantissa::testing
