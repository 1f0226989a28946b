#include "mantissa/core/numeric/round.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace mantissa {
namespace {

using u64 = std::uint64_t;

constexpr int kDoubleMantissa = 52;
constexpr u64 kOne = 1;
constexpr u64 kDoubleSign = kOne << 63;
constexpr u64 kDoubleInf = u64{0x7ff} << kDoubleMantissa;
constexpr u64 kDoubleQuiet = kOne << (kDoubleMantissa - 1);

/// Codes of a format without their sign bit.
struct Codes {
  int mantissa;    // mantissa bits
  u64 inf;         // the overflow code: infinity, or the NaN of e4m3
  u64 max_finite;  // the largest finite code; codes grow with their values
};

Codes codes_of(const ScalarTraits& t) {
  const u64 all_ones = ((kOne << t.exponent_bits) - 1) << t.mantissa_bits;
  if (t.has_infinity) return {t.mantissa_bits, all_ones, all_ones - 1};
  const u64 nan = all_ones | ((kOne << t.mantissa_bits) - 1);
  return {t.mantissa_bits, nan, nan - 1};
}

u64 encode_nan(u64 magnitude, const ScalarTraits& t, const Codes& codes) {
  if (!t.has_infinity) return codes.inf;
  const u64 payload = (magnitude & (kDoubleQuiet - 1)) >> (kDoubleMantissa - t.mantissa_bits);
  return codes.inf | (kOne << (t.mantissa_bits - 1)) | payload;
}

bool rounds_up(u64 fraction, bool odd, Rounding rounding, std::uint32_t random) {
  constexpr u64 kHalf = kOne << 63;
  switch (rounding) {
    case Rounding::nearest:
      return fraction > kHalf || (fraction == kHalf && odd);
    case Rounding::toward_zero:
      return false;
    case Rounding::stochastic:
      return (fraction >> 32) > random;
  }
  return false;
}

/// The code of a finite magnitude, which may exceed the largest finite value.
u64 encode_finite(u64 magnitude, const ScalarTraits& t, Rounding rounding, std::uint32_t random) {
  // magnitude = significand × 2^place
  const u64 field = magnitude >> kDoubleMantissa;
  const u64 fraction_bits = magnitude & ((kOne << kDoubleMantissa) - 1);
  const u64 significand = field == 0 ? fraction_bits : fraction_bits | (kOne << kDoubleMantissa);
  const int place = static_cast<int>(std::max<u64>(field, 1)) - 1075;
  // The binade that determines the last kept place. Subnormals share that of the smallest normal.
  const int exponent = std::max(place + static_cast<int>(std::bit_width(significand)) - 1, t.min_normal_exp);
  const int drop = exponent - t.mantissa_bits - place;
  // The kept bits, and the rest as a fraction of the last kept place in units of 2^-64.
  const u64 kept = drop < 64 ? significand >> drop : 0;
  u64 fraction = 0;
  if (drop > 0 && drop < 64) fraction = significand << (64 - drop);
  if (drop >= 64 && drop < 128) fraction = significand >> (drop - 64);
  const u64 rounded = kept + (rounds_up(fraction, (kept & 1) != 0, rounding, random) ? 1 : 0);
  // A normal significand's leading one adds 1 to the exponent field, and so does a carry.
  return (static_cast<u64>(exponent - t.min_normal_exp) << t.mantissa_bits) + rounded;
}

u64 encode_magnitude(u64 magnitude, const ScalarTraits& t, RoundingMode mode, std::uint32_t random) {
  const Codes codes = codes_of(t);
  if (magnitude > kDoubleInf) return encode_nan(magnitude, t, codes);
  if (magnitude == kDoubleInf) return mode.saturate ? codes.max_finite : codes.inf;
  const u64 code = encode_finite(magnitude, t, mode.rounding, random);
  if (code > codes.max_finite) {
    return mode.saturate || mode.rounding == Rounding::toward_zero ? codes.max_finite : codes.inf;
  }
  if (mode.flush_subnormals && code < (kOne << t.mantissa_bits)) return 0;
  return code;
}

}  // namespace

double decode(u64 bits, Scalar s) {
  if (s == Scalar::tf32) return decode(bits, Scalar::f32);
  const ScalarTraits& t = traits(s);
  const Codes codes = codes_of(t);
  const u64 sign_bit = kOne << (t.exponent_bits + t.mantissa_bits);
  const u64 sign = (bits & sign_bit) != 0 ? kDoubleSign : 0;
  const u64 magnitude = bits & (sign_bit - 1);
  if (magnitude > codes.max_finite) {
    u64 special = kDoubleInf;
    if (!t.has_infinity) {
      special |= kDoubleQuiet;
    } else if (magnitude > codes.inf) {
      special |= kDoubleQuiet | ((magnitude - codes.inf) << (kDoubleMantissa - t.mantissa_bits));
    }
    return std::bit_cast<double>(sign | special);
  }
  const u64 field = magnitude >> t.mantissa_bits;
  const u64 fraction = magnitude & ((kOne << t.mantissa_bits) - 1);
  const u64 significand = field == 0 ? fraction : fraction | (kOne << t.mantissa_bits);
  const int exponent = static_cast<int>(std::max<u64>(field, 1)) - 1 + t.min_normal_exp - t.mantissa_bits;
  const double value = std::ldexp(static_cast<double>(significand), exponent);
  return std::bit_cast<double>(sign | std::bit_cast<u64>(value));
}

u64 encode(double value, Scalar s, RoundingMode mode, std::uint32_t random) {
  const ScalarTraits& t = traits(s);
  const u64 bits = std::bit_cast<u64>(value);
  const u64 magnitude = bits & ~kDoubleSign;
  const u64 sign = (bits >> 63) << (t.exponent_bits + t.mantissa_bits);
  const u64 code = sign | encode_magnitude(magnitude, t, mode, random);
  return s == Scalar::tf32 ? code << (traits(Scalar::f32).mantissa_bits - t.mantissa_bits) : code;
}

double round_to(double value, Scalar s, RoundingMode mode, std::uint32_t random) {
  return decode(encode(value, s, mode, random), s);
}

double ulp(double value, Scalar s) {
  const ScalarTraits& t = traits(s);
  const int exponent = value == 0 ? t.min_normal_exp : std::max(std::ilogb(value), t.min_normal_exp);
  return std::ldexp(1.0, exponent - t.mantissa_bits);
}

double overflow_bound(Scalar s) {
  const double largest = traits(s).max_finite;
  return largest + ulp(largest, s) / 2;
}

}  // namespace mantissa
