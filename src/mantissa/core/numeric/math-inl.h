// Vector exponential, logarithm, tanh, normal distribution, sigmoid, reciprocal square root, sine and cosine.
// The polynomials are our own (minimax, Remez) and every rounding is explicit, so the bits are equal on every
// instruction set and with every C library. f32 sine and cosine run lane by lane. Included once per
// instruction set (Highway's -inl.h idiom).
//
// Largest error over all 2^32 f32 inputs, in units in the last place of the exact result:
//   Exp 0.78  Log 0.84  Tanh 1.35  NormalCdf 5.34  Sigmoid 1.97  Rsqrt 1.50  Sin, Cos 0.5000001
// Proven bounds in f64, and in parentheses the largest error found in 150 million inputs of four kinds
// (random bits; the range in which the function changes; around 0, or around 1 for the logarithm; all
// magnitudes):
//   Exp 0.82 (0.77)   Log 0.80 (0.76)   Tanh 0.95 (0.89)   Sigmoid 1.97 (1.85)
//   Rsqrt 1.50 (two roundings)   Sin, Cos 0.65 (0.63) at any size   NormalCdf unproven (5.54)
// Results below the smallest normal are subnormal (gradual underflow), then 0. NaN gives a quiet NaN.
#if defined(MANTISSA_NUMERIC_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_MATH_INL_H_
#undef MANTISSA_NUMERIC_MATH_INL_H_
#else
#define MANTISSA_NUMERIC_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/core/numeric/math_f64-inl.h"
#include "mantissa/core/numeric/sin_cos.h"
#include "mantissa/core/numeric/sin_cos_f64-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Adding this to a float leaves the nearest integer in the lowest bits.
inline constexpr float kRoundingShift = 0x1.8p23f;

#if HWY_TARGET <= HWY_AVX3
// AVX-512 computes y · 2^n in one instruction.
HWY_INLINE hn::Vec512<float> ScaleLanes(hn::Vec512<float> y, hn::Vec512<float> n) {
  return hn::Vec512<float>{_mm512_scalef_ps(y.raw, n.raw)};
}
HWY_INLINE hn::Vec256<float> ScaleLanes(hn::Vec256<float> y, hn::Vec256<float> n) {
  return hn::Vec256<float>{_mm256_scalef_ps(y.raw, n.raw)};
}
template <std::size_t kLanes>
HWY_INLINE hn::Vec128<float, kLanes> ScaleLanes(hn::Vec128<float, kLanes> y, hn::Vec128<float, kLanes> n) {
  return hn::Vec128<float, kLanes>{_mm_scalef_ps(y.raw, n.raw)};
}

/// y · 2^n, rounded once, for y in [1/2, 2] and shifted = 1.5 · 2^23 + n, n in [-151, 129]; a quiet NaN if x
/// is NaN.
template <class D, class V>
HWY_INLINE V ScaleByPowerOfTwo(D d, V y, V shifted, V /*x*/) {
  return ScaleLanes(y, hn::Sub(shifted, hn::Set(d, kRoundingShift)));
}
#else
/// 2^n for integers n in [-126, 127].
template <class D, class VI>
HWY_INLINE hn::Vec<D> PowerOfTwoLanes(D d, VI n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

template <class D, class V>
HWY_INLINE V ScaleByPowerOfTwo(D d, V y, V shifted, V x) {
  // Two factors: the first product is exact, the second one rounds once, subnormal results included.
  const hn::RebindToSigned<D> di;
  const auto n = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, hn::Set(d, kRoundingShift)));
  const auto first = hn::ShiftRight<1>(n);
  const auto scaled = hn::Mul(hn::Mul(y, PowerOfTwoLanes(d, first)), PowerOfTwoLanes(d, hn::Sub(n, first)));
  return hn::IfThenElse(hn::IsNaN(x), hn::Add(x, x), scaled);
}
#endif

/// Applies `f` to every lane.
template <class D, class V, class F>
HWY_INLINE V LaneByLane(D d, V v, F f) {
  using T = hn::TFromD<D>;
  HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(v, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = f(lanes[i]);
  return hn::Load(d, lanes);
}

/// e^x. Overflows to inf above 88.7228.
template <F32Lanes D, class V>
HWY_INLINE V Exp(D d, V x) {
  // The result is 0 or inf outside these bounds. On x86 min and max return the second operand if either is
  // NaN, so a NaN x survives.
  const auto clamped = hn::Min(hn::Set(d, 89.0f), hn::Max(hn::Set(d, -104.5f), x));
  const auto shift = hn::Set(d, kRoundingShift);
  const auto shifted = hn::MulAdd(clamped, hn::Set(d, 0x1.715476p+0f), shift);
  const auto n = hn::Sub(shifted, shift);
  // r = high + low. The upper part of ln 2 has 21 bits, so `high` is exact; 1 + high = sum + rest, exactly.
  const auto high = hn::NegMulAdd(n, hn::Set(d, 0x1.62e43p-1f), clamped);
  const auto low = hn::Mul(n, hn::Set(d, 0x1.05c61p-29f));
  const auto r = hn::Add(high, low);
  const auto q =
      Polynomial(d, r, 0x1.fffffcp-2f, 0x1.555490p-3f, 0x1.5558f4p-5f, 0x1.123a6cp-7f, 0x1.6a2352p-10f);
  const auto one = hn::Set(d, 1.0f);
  const auto sum = hn::Add(one, high);
  const auto rest = hn::Add(hn::Sub(one, sum), high);
  const auto y = hn::Add(sum, hn::Add(rest, hn::MulAdd(hn::Mul(r, r), q, low)));
  return ScaleByPowerOfTwo(d, y, shifted, x);
}

/// The natural logarithm: -inf for zeros, NaN for negative values.
template <F32Lanes D, class V>
HWY_INLINE V Log(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto is_subnormal = hn::Lt(x, hn::Set(d, 0x1p-126f));
  const auto bits = hn::BitCast(di, hn::IfThenElse(is_subnormal, hn::Mul(x, hn::Set(d, 0x1p23f)), x));
  // x = m × 2^e with m in [√½, √2). The subtracted constant is the code of √½.
  const auto whole = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const auto m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(whole)));
  const auto e = hn::Sub(hn::ConvertTo(d, whole), hn::IfThenElseZero(is_subnormal, hn::Set(d, 23.0f)));
  const auto f = hn::Sub(m, hn::Set(d, 1.0f));
  const auto square = hn::Mul(f, f);
  const auto p = Polynomial(d, f, 0x1.555548p-2f, -0x1.000006p-2f, 0x1.99a4b6p-3f, -0x1.555c4ep-3f,
                            0x1.233768p-3f, -0x1.fc2206p-4f, 0x1.e6f062p-4f, -0x1.de3c1cp-4f, 0x1.1457c4p-4f);
  // ln 2 in two parts: the upper part has 15 bits, so its product with e is exact.
  auto low = hn::Mul(hn::Mul(square, f), p);
  low = hn::MulAdd(e, hn::Set(d, 0x1.7f7d1cp-20f), low);
  low = hn::NegMulAdd(hn::Set(d, 0.5f), square, low);
  const auto high = hn::Mul(e, hn::Set(d, 0x1.62e4p-1f));
  return LogOrSpecial(d, x, hn::Add(high, hn::Add(f, low)));
}

/// The hyperbolic tangent.
template <F32Lanes D, class V>
HWY_INLINE V Tanh(D d, V x) {
  const auto one = hn::Set(d, 1.0f);
  const auto abs = hn::Abs(x);
  const auto square = hn::Mul(abs, abs);
  const auto p = Polynomial(d, square, -0x1.555534p-2f, 0x1.110768p-3f, -0x1.b84448p-5f, 0x1.5256d8p-6f,
                            -0x1.76ac1cp-8f);
  const auto small = hn::MulAdd(hn::Mul(square, p), abs, abs);
  const auto power = Exp(d, hn::Add(abs, abs));
  const auto large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(power, one)));
  return hn::CopySignToAbs(hn::IfThenElse(hn::Lt(abs, hn::Set(d, 0.625f)), small, large), x);
}

/// The normal distribution Φ(x): ½ + x·p(x²) within ±1, and beyond e^(−t²/2)·q(u)/(t + 4), t = |x|, u = (t −
/// 4)/(t + 4), or 1 minus that, which does not cancel. From −15 on the result is 0.
template <F32Lanes D, class V>
HWY_INLINE V NormalCdf(D d, V x) {
  const auto one = hn::Set(d, 1.0f), shift = hn::Set(d, 4.0f);
  const auto p = Polynomial(d, hn::Mul(x, x), 0x1.988454p-2f, -0x1.105832p-4f, 0x1.46ce58p-7f,
                            -0x1.36fe32p-10f, 0x1.dc102ap-14f, -0x1.010b86p-17f);
  const auto near = hn::MulAdd(x, p, hn::Set(d, 0.5f));
  const auto t = hn::Min(hn::Abs(x), hn::Set(d, 15.0f));
  const auto r = hn::Div(one, hn::Add(t, shift));
  const auto q = Polynomial(d, hn::Mul(hn::Sub(t, shift), r), 0x1.82b4bcp-1f, -0x1.373e3ap-1f, 0x1.8c6dcp-2f,
                            -0x1.7dff32p-3f, 0x1.eec492p-5f, -0x1.ee157p-8f, -0x1.c7fe9p-9f, 0x1.a949ecp-10f,
                            0x1.1391d6p-13f, -0x1.a98b4p-13f);
  // The bell with the rounding error of t².
  const auto square = hn::Mul(t, t), half = hn::Set(d, 0.5f);
  const auto bell = Exp(d, hn::Neg(hn::Mul(square, half)));
  const auto exact = hn::NegMulAdd(hn::Mul(bell, half), hn::MulSub(t, t, square), bell);
  const auto tail = hn::Mul(exact, hn::Mul(q, r));
  const auto far = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  const auto y = hn::IfThenElse(hn::Lt(hn::Abs(x), one), near, far);
  return hn::IfThenElse(hn::IsNaN(x), hn::Add(x, x), y);
}

/// 1 / (1 + e^-x) in f32 and f64, computed from e^-|x| so that neither side overflows or cancels.
template <class D, class V>
HWY_INLINE V Sigmoid(D d, V x) {
  using T = hn::TFromD<D>;
  const auto one = hn::Set(d, T{1});
  const auto z = Exp(d, hn::Neg(hn::Abs(x)));
  const auto negative = hn::Lt(x, hn::Zero(d));
  const auto sum = hn::Add(one, z);
  const auto quotient = hn::Div(hn::IfThenElse(negative, z, one), sum);
  // Corrects the quotient by the exact rounding error of the sum: 1 / sum is the quotient or its complement.
  const auto rest = hn::Sub(z, hn::Sub(sum, one));
  const auto reciprocal = hn::IfThenElse(negative, hn::Sub(one, quotient), quotient);
  return hn::NegMulAdd(hn::Mul(quotient, rest), reciprocal, quotient);
}

/// 1 / √x in f32 and f64: a root and a quotient, each correctly rounded. inf for zeros (with their sign), NaN
/// for negative values.
template <class D, class V>
HWY_INLINE V Rsqrt(D d, V x) {
  return hn::Div(hn::Set(d, hn::TFromD<D>{1}), hn::Sqrt(x));
}

/// The sine of an angle of any size, in radians.
template <F32Lanes D, class V>
HWY_INLINE V Sin(D d, V x) {
  return LaneByLane(d, x, [](float angle) { return static_cast<float>(sin_cos(angle).sin); });
}

/// The cosine of an angle of any size, in radians.
template <F32Lanes D, class V>
HWY_INLINE V Cos(D d, V x) {
  return LaneByLane(d, x, [](float angle) { return static_cast<float>(sin_cos(angle).cos); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_MATH_INL_H_
