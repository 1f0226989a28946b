// 2^k as a constant expression.
#pragma once

namespace mantissa {

/// 2^exponent, exact where T can hold it.
template <class T>
constexpr T PowerOfTwo(int exponent) {
  T value = 1;
  for (; exponent > 0; --exponent) value *= 2;
  for (; exponent < 0; ++exponent) value /= 2;
  return value;
}

}  // namespace mantissa
