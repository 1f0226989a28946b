// Sine and cosine of an f32 angle of any size, and the reduction of an f64 one, without the C library: the
// same bits on every machine. An angle is reduced exactly by Payne and Hanek's method ("Radian reduction for
// trigonometric functions", SIGNUM 1983): what is left of angle · 2/π beyond multiples of 4 only needs those
// bits of 2/π that begin where the angle's last bit stands.
#pragma once

namespace mantissa {

struct SinCos {
  double sin = 0;
  double cos = 0;
};

/// sin and cos of `angle` in radians, to be rounded once. Their error is that of some roundings in f64:
/// rounded to f32 they are within 0.5000001 ulp of the exact result for all 2^32 angles. Of infinities and
/// nan: nan.
///
/// From 128 bits of 2/π r in [-π/4, π/4] has an error below 2^-101, and no f32 angle beyond π/4 is nearer
/// than 2^-29.3 to a multiple of π/2 (0x1.f37c8ap+95 is the nearest). Then the Taylor series up to r^17 and
/// r^18.
SinCos sin_cos(float angle);

/// An angle as whole quarter turns, modulo 4, and the fraction of one that is left: high + low in
/// [-1/2, 1/2], low at most half a unit in the last place of high.
struct QuarterTurns {
  double high = 0;
  double low = 0;
  unsigned quarters = 0;
};

/// `angle` · 2/π for a finite angle in radians of at least π/4; junk of all others. From 192 bits of 2/π the
/// fraction has an error below 2^-125, and no f64 angle beyond π/4 is nearer than 2^-60.9 to a multiple of
/// π/2 (0x1.6ac5b262ca1ffp+849 is the nearest): the error is below 2^-63 of the fraction.
QuarterTurns quarter_turns(double angle);

}  // namespace mantissa
