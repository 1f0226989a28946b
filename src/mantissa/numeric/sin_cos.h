// Sine and cosine of an f32 angle of any size, without the C library: the same bits on every machine.
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
/// The angle is reduced exactly to r in [-π/4, π/4] and a number of quarter turns (Payne and Hanek: "Radian
/// reduction for trigonometric functions", SIGNUM 1983): what is left of angle · 2/π beyond multiples of 4
/// only needs those 128 bits of 2/π that begin where the angle's last bit stands. r has an error below
/// 2^-101, and no f32 angle beyond π/4 is nearer than 2^-29.3 to a multiple of π/2 (0x1.f37c8ap+95 is the
/// nearest). Then the Taylor series up to r^17 and r^18.
SinCos sin_cos(float angle);

}  // namespace mantissa
