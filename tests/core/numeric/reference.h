// Two references for rounding that share no code with the implementation: MPFR, and the list of all values of
// a format.
#pragma once

#include <mpfr.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "mantissa/core/numeric/format.h"

namespace mantissa::testing {

inline constexpr Scalar kNarrow[] = {Scalar::tf32, Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3};
inline constexpr Scalar kSmall[] = {Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3};

/// Number of codes of a small format, signs included.
inline std::uint64_t code_count(Scalar s) {
  return std::uint64_t{1} << (8 * bytes_of(s));
}

/// Rounds `value` with MPFR to the precision and exponent range of `s`.
inline double round_by_mpfr(double value, Scalar s, Rounding rounding) {
  const ScalarTraits& t = traits(s);
  const mpfr_rnd_t mode = rounding == Rounding::nearest ? MPFR_RNDN : MPFR_RNDZ;
  const mpfr_exp_t emin = mpfr_get_emin(), emax = mpfr_get_emax();
  mpfr_t x;
  mpfr_init2(x, t.mantissa_bits + 1);
  // MPFR's significands lie in [½, 1).
  mpfr_set_emin(t.min_normal_exp - t.mantissa_bits + 1);
  mpfr_set_emax(std::ilogb(t.max_finite) + 1);
  int inexact = mpfr_set_d(x, value, mode);
  inexact = mpfr_check_range(x, inexact, mode);
  mpfr_subnormalize(x, inexact, mode);
  double result = mpfr_get_d(x, MPFR_RNDN);
  mpfr_clear(x);
  mpfr_set_emin(emin);
  mpfr_set_emax(emax);
  if (!t.has_infinity && std::fabs(result) > t.max_finite) {
    // The last code of e4m3's last binade is NaN. Rounding toward zero stops before it; an infinity becomes
    // NaN.
    const bool stops = rounding == Rounding::toward_zero && std::isfinite(value);
    result = stops ? std::copysign(t.max_finite, value) : std::numeric_limits<double>::quiet_NaN();
  }
  return result;
}

/// Returns the nonnegative values of `s` in order, followed by the value that would come after the largest:
/// code c has value [c].
inline std::vector<double> positive_values(Scalar s) {
  const ScalarTraits& t = traits(s);
  std::vector<double> values;
  for (std::uint64_t code = 0;; ++code) {
    const std::uint64_t field = code >> t.mantissa_bits;
    const double fraction = static_cast<double>(code & ((std::uint64_t{1} << t.mantissa_bits) - 1)) *
                            std::ldexp(1.0, -t.mantissa_bits);
    const int exponent = field == 0 ? t.min_normal_exp : t.min_normal_exp + static_cast<int>(field) - 1;
    values.push_back(std::ldexp(field == 0 ? fraction : 1 + fraction, exponent));
    if (values.back() > t.max_finite) return values;
  }
}

/// Returns values near ties: every value of `s`, every midpoint, and the f64 neighbours of both, with either
/// sign.
inline std::vector<double> critical_values(Scalar s) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::vector<double> grid = positive_values(s);
  std::vector<double> out = {kInf, -kInf, std::numeric_limits<double>::max(),
                             -std::numeric_limits<double>::max(), std::numeric_limits<double>::denorm_min()};
  for (std::size_t c = 0; c + 1 < grid.size(); ++c) {
    for (const double centre : {grid[c], (grid[c] + grid[c + 1]) / 2, grid[c + 1]}) {
      for (const double x : {centre, std::nextafter(centre, 0.0), std::nextafter(centre, kInf)}) {
        out.push_back(x);
        out.push_back(-x);
      }
    }
  }
  return out;
}

/// Returns uniformly random bit patterns.
inline std::vector<double> random_f64(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> out(n);
  for (double& x : out) x = std::bit_cast<double>(random());
  return out;
}

inline std::vector<float> random_f32(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> out(n);
  for (float& x : out) x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  return out;
}

/// Returns f64 values with exponents in and around the range of `s`, many with trailing zeros, as ties have.
inline std::vector<double> random_near_range(Scalar s, std::size_t n, std::uint64_t seed) {
  const ScalarTraits& t = traits(s);
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int> exponent(t.min_normal_exp - t.mantissa_bits - 3,
                                              std::ilogb(t.max_finite) + 1);
  std::uniform_int_distribution<int> zeros(0, 52);
  std::vector<double> out(n);
  for (double& x : out) {
    const std::uint64_t fraction = random() >> 12 & ~((std::uint64_t{1} << zeros(random)) - 1);
    x = std::ldexp(1 + static_cast<double>(fraction) * 0x1p-52, exponent(random));
    if ((random() & 1) != 0) x = -x;
  }
  return out;
}

/// Returns the bits, so that NaN equals NaN and 0 differs from -0.
inline std::uint64_t bits(double x) {
  return std::bit_cast<std::uint64_t>(x);
}
inline std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

}  // namespace mantissa::testing
