// Sine and cosine of f64 vectors without the C library, with the same bits on every instruction set: an exact
// reduction, then our own polynomials (minimax, Remez) with every rounding explicit. Included once per
// instruction set (Highway's -inl.h idiom). core/numeric/math-inl.h, which includes this, lists the errors.
#if defined(MANTISSA_NUMERIC_SIN_COS_F64_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_SIN_COS_F64_INL_H_
#undef MANTISSA_NUMERIC_SIN_COS_F64_INL_H_
#else
#define MANTISSA_NUMERIC_SIN_COS_F64_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/math_f64-inl.h"
#include "mantissa/core/numeric/sin_cos.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// π/2 in three parts.
inline constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0, kHalfPiMiddle = 0x1.1a62633145c07p-54,
                        kHalfPiLow = -0x1.f1976b7ed8fbcp-110;

/// An angle: `quarters` (modulo 4, in the lowest two bits) quarter turns plus high + low radians, |high| ≤
/// π/4.
template <class D>
struct ReducedAngle {
  hn::Vec<D> high, low;
  hn::Vec<hn::RebindToUnsigned<D>> quarters;
};

/// Converts high + low quarter turns, |high| ≤ 1/2, to radians: a product with π/2 in two parts.
template <class D, class V, class VU>
HWY_INLINE ReducedAngle<D> RadiansOfQuarters(D d, V high, V low, VU quarters) {
  const auto half_pi = hn::Set(d, kHalfPiHigh);
  const auto r = hn::Mul(high, half_pi);
  const auto rest = hn::MulSub(high, half_pi, r);
  return {r, hn::MulAdd(high, hn::Set(d, kHalfPiMiddle), hn::MulAdd(low, half_pi, rest)), quarters};
}

/// Reduces |x|. The result is unspecified for infinities and NaN.
template <class D, class V>
HWY_INLINE ReducedAngle<D> ReduceAngle(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const auto abs = hn::Abs(x);
  // |x| − n π/2 with π/2 in three parts. The first difference is exact: a multiple of 2^-53 below 1, or x
  // itself.
  const auto shift = hn::Set(d, kRoundingShiftF64);
  const auto shifted = hn::MulAdd(abs, hn::Set(d, 0x1.45f306dc9c883p-1), shift);
  const auto n = hn::Sub(shifted, shift);
  const auto first = hn::NegMulAdd(n, hn::Set(d, kHalfPiHigh), abs);
  const auto second = hn::Mul(n, hn::Set(d, kHalfPiMiddle));
  const auto second_rest = hn::MulSub(n, hn::Set(d, kHalfPiMiddle), second);
  // first − second = high + rest, exactly.
  const auto high = hn::Sub(first, second);
  const auto part = hn::Sub(high, first);
  const auto rest = hn::Sub(hn::Sub(first, hn::Sub(high, part)), hn::Add(second, part));
  const auto low = hn::Sub(rest, hn::MulAdd(n, hn::Set(d, kHalfPiLow), second_rest));
  ReducedAngle<D> reduced = {high, low, hn::BitCast(du, shifted)};

  const auto is_large = hn::Ge(abs, hn::Set(d, 0x1p30));
  if (HWY_LIKELY(hn::AllFalse(d, is_large))) return reduced;
  constexpr std::size_t kMost = HWY_MAX_BYTES / sizeof(double);
  HWY_ALIGN double turns_high[kMost];
  HWY_ALIGN double turns_low[kMost];
  HWY_ALIGN std::uint64_t quarters[kMost];
  hn::Store(abs, d, turns_high);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
    const QuarterTurns turns = quarter_turns(turns_high[i]);
    turns_high[i] = turns.high;
    turns_low[i] = turns.low;
    quarters[i] = turns.quarters;
  }
  const auto large =
      RadiansOfQuarters(d, hn::Load(d, turns_high), hn::Load(d, turns_low), hn::Load(du, quarters));
  reduced.high = hn::IfThenElse(is_large, large.high, reduced.high);
  reduced.low = hn::IfThenElse(is_large, large.low, reduced.low);
  reduced.quarters = hn::IfThenElse(hn::RebindMask(du, is_large), large.quarters, reduced.quarters);
  return reduced;
}

/// sin(high + low) for |high| ≤ π/4. The polynomial's error is 2^-63 of the result.
template <class D, class V>
HWY_INLINE V SinOfReduced(D d, V r, V low) {
  const auto third = hn::Set(d, -0x1.5555555555555p-3);
  const auto x = hn::Mul(r, r);
  const auto x_rest = hn::MulSub(r, r, x);
  const auto q = Polynomial(d, x, 0x1.1111111111067p-7, -0x1.a01a019ffdba2p-13, 0x1.71de3a32a9401p-19,
                            -0x1.ae642ad5ec524p-26, 0x1.6108b3b2e0556p-33, -0x1.9f70ee63e9de9p-41);
  const auto p = hn::MulAdd(x, third, hn::MulAdd(hn::Mul(x, x), q, hn::Mul(x_rest, third)));
  const auto low_part = hn::NegMulAdd(hn::Mul(low, hn::Set(d, 0.5)), x, low);
  return hn::Add(r, hn::MulAdd(r, p, low_part));
}

/// cos(high + low) for |high| ≤ π/4. The polynomial's error is 2^-64 of the result.
template <class D, class V>
HWY_INLINE V CosOfReduced(D d, V r, V low) {
  const auto one = hn::Set(d, 1.0), half = hn::Set(d, 0.5);
  const auto x = hn::Mul(r, r);
  const auto x_rest = hn::MulSub(r, r, x);
  const auto q = Polynomial(d, x, 0x1.555555555554cp-5, -0x1.6c16c16c1521fp-10, 0x1.a01a019cbf636p-16,
                            -0x1.27e4f812b7c02p-22, 0x1.1ee9f1541c6a1p-29, -0x1.8fb1323286da8p-37);
  // 1 − x/2 = sum + rest, exactly.
  const auto half_x = hn::Mul(x, half);
  const auto sum = hn::Sub(one, half_x);
  const auto rest = hn::Sub(hn::Sub(one, sum), half_x);
  const auto low_part = hn::MulAdd(r, low, hn::Mul(x_rest, half));
  return hn::Add(sum, hn::Add(rest, hn::MulSub(hn::Mul(x, x), q, low_part)));
}

/// The sine of the angle, or its cosine if `quarter_ahead` is 1.
template <class D>
HWY_INLINE hn::Vec<D> SinOfAngle(D d, const ReducedAngle<D>& angle, std::uint64_t quarter_ahead) {
  const hn::RebindToUnsigned<D> du;
  const auto quarters = hn::Add(angle.quarters, hn::Set(du, quarter_ahead));
  const auto odd = hn::BitCast(d, hn::ShiftLeft<63>(quarters));
  const auto sign = hn::BitCast(d, hn::ShiftLeft<63>(hn::ShiftRight<1>(quarters)));
  const auto y = hn::IfNegativeThenElse(odd, CosOfReduced(d, angle.high, angle.low),
                                        SinOfReduced(d, angle.high, angle.low));
  return hn::Xor(y, sign);
}

/// The sine of an angle of any size, in radians.
template <F64Lanes D, class V>
HWY_INLINE V Sin(D d, V x) {
  const auto sign = hn::And(x, hn::SignBit(d));
  const auto y = hn::Xor(SinOfAngle(d, ReduceAngle(d, x), 0), sign);
  return hn::IfThenElse(hn::IsFinite(x), y, hn::Sub(x, x));
}

/// The cosine of an angle of any size, in radians.
template <F64Lanes D, class V>
HWY_INLINE V Cos(D d, V x) {
  const auto y = SinOfAngle(d, ReduceAngle(d, x), 1);
  return hn::IfThenElse(hn::IsFinite(x), y, hn::Sub(x, x));
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_SIN_COS_F64_INL_H_
