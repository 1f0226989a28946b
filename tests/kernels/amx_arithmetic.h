// The arithmetic of TDPBF16PS as Intel's manual states it (SDM volume 2), for the emulator: binary32 with one
// rounding to nearest even per operation, subnormal operands taken as zero, and tiny results replaced by
// zero, both with their sign. A result is tiny if it is below 2^-126 after rounding to 24 bits, however small
// its exponent.
//
// Written apart from cpu/model_tiles.h, by another method, to be compared with it: no fused multiply-add, but
// the exact sum in two doubles, which is rounded to odd and then once to binary32.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>

namespace mantissa::kernels::testing::amx {

inline bool is_nan(std::uint32_t x) {
  return (x & 0x7fffffffU) > 0x7f800000U;
}

/// Returns the value of a binary32 operand; zero with its sign for a subnormal one.
inline double operand(std::uint32_t x) {
  const bool subnormal_or_zero = (x & 0x7f800000U) == 0;
  return static_cast<double>(std::bit_cast<float>(subnormal_or_zero ? x & 0x80000000U : x));
}

/// Rounds `sum` + `rest` to binary32. |rest| is at most half a unit in the last place of `sum`.
inline std::uint32_t round_once(double sum, double rest) {
  // The tie at 2^-126 - 2^-151 rounds to the even number, 2^-126.
  constexpr double kTiny = 0x1p-126 - 0x1p-151;
  auto bits = std::bit_cast<std::uint64_t>(sum);
  const bool even = (bits & 1U) == 0;
  if (rest != 0 && even) bits = (rest > 0) == (sum > 0) ? bits + 1 : bits - 1;
  const double odd = std::bit_cast<double>(bits);
  const double result = std::abs(odd) < kTiny ? std::copysign(0.0, odd) : odd;
  return std::bit_cast<std::uint32_t>(static_cast<float>(result));
}

/// Returns a · b + c, where a and b have at most 8 significant bits (bf16), so that a double holds a · b. The
/// manual does not say which NaN results from several: here the first one, quiet.
inline std::uint32_t multiply_add(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  constexpr std::uint32_t kQuiet = 0x00400000U, kIndefinite = 0xffc00000U;
  for (const std::uint32_t x : {a, b, c}) {
    if (is_nan(x)) return x | kQuiet;
  }
  const double product = operand(a) * operand(b), addend = operand(c), sum = product + addend;
  if (std::isnan(sum)) return kIndefinite;
  if (std::isinf(sum)) return std::bit_cast<std::uint32_t>(static_cast<float>(sum));
  const double of_addend = sum - product;  // Knuth's exact error of a sum
  return round_once(sum, (product - (sum - of_addend)) + (addend - of_addend));
}

/// Returns a + b.
inline std::uint32_t add(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t kOne = 0x3f800000U;
  return multiply_add(kOne, a, b);
}

}  // namespace mantissa::kernels::testing::amx
