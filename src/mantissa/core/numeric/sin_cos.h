// Sine and cosine of an f32 angle of any size, and the reduction of an f64 angle, without the C library:
// every machine gives the same bits. The reduction is exact, by Payne and Hanek's method ("Radian reduction
// for trigonometric functions", SIGNUM 1983): the remainder of angle · 2/π modulo 4 needs only the bits of
// 2/π from the position of the angle's last bit on.
#pragma once

namespace mantissa {

struct SinCos {
  double sin = 0;
  double cos = 0;
};

/// Returns sin and cos of `angle` in radians, to be rounded once. Their error is that of a few f64 roundings:
/// rounded to f32, they are within 0.5000001 ulp of the exact result for all 2^32 angles. Infinities and NaN
/// give NaN.
///
/// The reduction uses 128 bits of 2/π, so r in [-π/4, π/4] has an error below 2^-101. No f32 angle beyond π/4
/// is nearer than 2^-29.3 to a multiple of π/2 (0x1.f37c8ap+95 is the nearest). The Taylor series run up to
/// r^17 and r^18.
SinCos sin_cos(float angle);

/// An angle as whole quarter turns, modulo 4, and a remaining fraction high + low in [-1/2, 1/2]. `low` is at
/// most half a unit in the last place of `high`.
struct QuarterTurns {
  double high = 0;
  double low = 0;
  unsigned quarters = 0;
};

/// Returns `angle` · 2/π for a finite angle in radians of at least π/4; unspecified otherwise. The reduction
/// uses 192 bits of 2/π, so the fraction has an error below 2^-125. No f64 angle beyond π/4 is nearer than
/// 2^-60.9 to a multiple of π/2 (0x1.6ac5b262ca1ffp+849 is the nearest), so the error is below 2^-63 of the
/// fraction.
QuarterTurns quarter_turns(double angle);

}  // namespace mantissa
