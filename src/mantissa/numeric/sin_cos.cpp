#include "mantissa/numeric/sin_cos.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace mantissa {
namespace {

using u64 = std::uint64_t;
__extension__ using u128 = unsigned __int128;
__extension__ using i128 = __int128;

/// The bits of 2/π behind the point, after 32 zeros.
constexpr u64 kTwoOverPi[] = {0x00000000a2f9836e, 0x4e441529fc2757d1, 0xf534ddc0db629599, 0x3c439041fe5163ab,
                              0xdebbc561b7246e3a};
constexpr double kHalfPi = 0x1.921fb54442d18p+0;
constexpr double kQuarterPi = 0x1.921fb54442d18p-1;

/// 128 bits of the table from bit `first` on.
u128 window(unsigned first) {
  const unsigned word = first / 64, shift = first % 64;
  const u128 high = u128{kTwoOverPi[word]} << 64 | kTwoOverPi[word + 1];
  return shift == 0 ? high : high << shift | kTwoOverPi[word + 2] >> (64 - shift);
}

struct Reduced {
  double r;
  unsigned quarters;  // modulo 4
};

/// `angle` is finite and at least π/4.
Reduced reduce(float angle) {
  const auto bits = std::bit_cast<std::uint32_t>(angle);
  const unsigned field = bits >> 23;
  // angle = significand · 2^(field − 150). Bits of 2/π of more weight than 2^(151 − field) make multiples
  // of 4.
  const u64 significand = (bits & 0x7fffff) | 0x800000;
  const u128 turns = window(field - 120) * significand;  // in units of 2^-126 quarters, modulo 4
  const u128 quarters = (turns + (u128{1} << 125)) >> 126;
  const auto fraction = static_cast<i128>(turns - (quarters << 126));
  return {static_cast<double>(fraction) * 0x1p-126 * kHalfPi, static_cast<unsigned>(quarters)};
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

}  // namespace mantissa
