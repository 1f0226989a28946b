// 2^k as a constant expression.
#pragma once

namespace mantissa {

/// 2^exponent, exact if T can represent it.
template <class T>
constexpr T PowerOfTwo(int exponent) {
  T value = 1;
  for (; exponent > 0; --exponent) value *= 2;
  for (; exponent < 0; ++exponent) value /= 2;
  return value;
}

}  // namespace mantissa
