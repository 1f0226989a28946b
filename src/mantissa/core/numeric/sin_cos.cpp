#include "mantissa/core/numeric/sin_cos.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace mantissa {
namespace {

using u64 = std::uint64_t;
__extension__ using u128 = unsigned __int128;
__extension__ using i128 = __int128;

/// The fractional bits of 2/π, after 64 zeros.
constexpr u64 kTwoOverPi[] = {0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
                              0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e,
                              0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
                              0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
                              0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab};
constexpr double kHalfPi = 0x1.921fb54442d18p+0;
constexpr double kQuarterPi = 0x1.921fb54442d18p-1;

/// 64 bits of the table, starting at bit `first`.
u64 bits_from(unsigned first) {
  const unsigned word = first / 64, shift = first % 64;
  return shift == 0 ? kTwoOverPi[word] : kTwoOverPi[word] << shift | kTwoOverPi[word + 1] >> (64 - shift);
}

/// 128 bits of the table, starting at bit `first`.
u128 window(unsigned first) {
  return u128{bits_from(first)} << 64 | bits_from(first + 64);
}

struct Turns {
  i128 fraction;  // in units of 2^-126 quarters, at most half a quarter in size
  unsigned quarters;
};

/// Reduces `turns`, in units of 2^-126 quarters, modulo 4.
Turns turns_of(u128 turns) {
  const u128 quarters = (turns + (u128{1} << 125)) >> 126;
  return {static_cast<i128>(turns - (quarters << 126)), static_cast<unsigned>(quarters)};
}

struct Reduced {
  double r;
  unsigned quarters;  // modulo 4
};

/// Reduces `angle`, which is finite and at least π/4.
Reduced reduce(float angle) {
  const auto bits = std::bit_cast<std::uint32_t>(angle);
  const unsigned field = bits >> 23;
  // angle = significand · 2^(field − 150). Bits of 2/π with a weight above 2^(151 − field) contribute
  // multiples of 4.
  const u64 significand = (bits & 0x7fffff) | 0x800000;
  const Turns turns = turns_of(window(field - 88) * significand);
  return {static_cast<double>(turns.fraction) * 0x1p-126 * kHalfPi, turns.quarters};
}

/// c0 + c1 x + c2 x² + …, by Horner's rule.
template <class... Rest>
double polynomial(double x, double c0, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return c0;
  } else {
    return polynomial(x, rest...) * x + c0;
  }
}

/// 1/n!
constexpr double inverse_factorial(int n) {
  double factorial = 1;  // exact up to 18!
  for (int i = 2; i <= n; ++i) factorial *= i;
  return 1 / factorial;
}

double sin_of_reduced(double r) {
  constexpr auto c = inverse_factorial;
  const double x = r * r;
  return r + r * x * polynomial(x, -c(3), c(5), -c(7), c(9), -c(11), c(13), -c(15), c(17));
}

double cos_of_reduced(double r) {
  constexpr auto c = inverse_factorial;
  const double x = r * r;
  return 1 - (x / 2 - x * x * polynomial(x, c(4), -c(6), c(8), -c(10), c(12), -c(14), c(16), -c(18)));
}

}  // namespace

SinCos sin_cos(float angle) {
  if (!std::isfinite(angle)) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    return {kNan, kNan};
  }
  const float size = std::fabs(angle);
  const Reduced reduced = static_cast<double>(size) < kQuarterPi ? Reduced{size, 0} : reduce(size);
  const double s = sin_of_reduced(reduced.r), c = cos_of_reduced(reduced.r);
  const unsigned quarters = reduced.quarters % 4;
  const double sin = quarters % 2 == 0 ? s : c, cos = quarters % 2 == 0 ? c : s;
  const bool sin_negative = (quarters >= 2) != std::signbit(angle);
  return {sin_negative ? -sin : sin, quarters == 1 || quarters == 2 ? -cos : cos};
}

QuarterTurns quarter_turns(double angle) {
  const auto bits = std::bit_cast<u64>(angle);
  // angle = significand · 2^(field − 1075). Bits of 2/π with a weight above 2^(1076 − field) contribute
  // multiples of 4.
  const unsigned field = std::clamp(static_cast<unsigned>(bits >> 52), 1013U, 2046U);
  const u64 significand = (bits & 0xfffffffffffff) | u64{1} << 52;
  const unsigned first = field - 1013;
  // The upper 128 of the 192 relevant bits, in units of 2^-126 quarters, modulo 4.
  const u128 last = (u128{bits_from(first + 128)} * significand) >> 64;
  const Turns turns = turns_of(window(first) * significand + last);
  const auto high = static_cast<double>(turns.fraction);
  const auto low = static_cast<double>(turns.fraction - static_cast<i128>(high));
  return {high * 0x1p-126, low * 0x1p-126, turns.quarters};
}

}  // namespace mantissa
