// A search for values that are not finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mantissa/core/numeric/format.h"

namespace mantissa::weights {

/// Returns true if one of the n values is inf or NaN: all bits of its exponent are set.
template <class Word>
bool any_nonfinite(const std::byte* x, std::size_t n, Word exponent) {
  Word found = 0;
  for (std::size_t i = 0; i < n; ++i) {
    Word word;
    std::memcpy(&word, x + i * sizeof(Word), sizeof(Word));
    found = static_cast<Word>(found | static_cast<Word>((word & exponent) == exponent));
  }
  return found != 0;
}

inline bool any_nonfinite(const std::byte* x, std::size_t n, Scalar format) {
  switch (format) {
    case Scalar::f64:
      return any_nonfinite<std::uint64_t>(x, n, 0x7ff0000000000000U);
    case Scalar::f32:
    case Scalar::tf32:
      return any_nonfinite<std::uint32_t>(x, n, 0x7f800000U);
    case Scalar::bf16:
      return any_nonfinite<std::uint16_t>(x, n, 0x7f80U);
    case Scalar::e5m2:
      return any_nonfinite<std::uint8_t>(x, n, 0x7cU);
    case Scalar::e4m3:  // e4m3 has one NaN, all ones
      return any_nonfinite<std::uint8_t>(x, n, 0x7fU);
    default:
      return any_nonfinite<std::uint16_t>(x, n, 0x7c00U);
  }
}

}  // namespace mantissa::weights
