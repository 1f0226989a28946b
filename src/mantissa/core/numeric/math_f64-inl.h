// Exponential, logarithm, tanh and normal distribution of f64 vectors. The polynomials are our own (minimax,
// Remez) and every rounding is explicit, so the bits are equal on every instruction set and independent of
// the C library. Included once per instruction set (Highway's -inl.h idiom). core/numeric/math-inl.h, which
// includes this, lists the errors.
#if defined(MANTISSA_NUMERIC_MATH_F64_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_MATH_F64_INL_H_
#undef MANTISSA_NUMERIC_MATH_F64_INL_H_
#else
#define MANTISSA_NUMERIC_MATH_F64_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "mantissa/core/numeric/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// c0 + c1 x + c2 x² + … by Horner's rule, each step one fused multiply-add.
template <class D, class V, class... Rest>
HWY_INLINE V Polynomial(D d, V x, hn::TFromD<D> c0, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return hn::Set(d, c0);
  } else {
    return hn::MulAdd(Polynomial(d, x, rest...), x, hn::Set(d, c0));
  }
}

/// Adding this to a double below 2^51 in size leaves the nearest integer in the lowest bits.
inline constexpr double kRoundingShiftF64 = 0x1.8p52;

/// ln 2 in two parts: the upper part has 42 bits, so its product with an 11-bit integer is exact.
inline constexpr double kLn2High = 0x1.62e42fefa38p-1, kLn2Low = 0x1.ef35793c7673p-45;

/// 2^n for integers n in [-1022, 1023].
template <class D, class V>
HWY_INLINE V PowerOfTwoF64(D d, V n) {
  const hn::RebindToUnsigned<D> du;
  const auto shifted = hn::Add(n, hn::Set(d, kRoundingShiftF64 + 1023));
  return hn::BitCast(d, hn::ShiftLeft<52>(hn::BitCast(du, shifted)));
}

#if HWY_TARGET <= HWY_AVX3
// AVX-512 computes y · 2^n in one instruction.
HWY_INLINE hn::Vec512<double> ScaleLanesF64(hn::Vec512<double> y, hn::Vec512<double> n) {
  return hn::Vec512<double>{_mm512_scalef_pd(y.raw, n.raw)};
}
HWY_INLINE hn::Vec256<double> ScaleLanesF64(hn::Vec256<double> y, hn::Vec256<double> n) {
  return hn::Vec256<double>{_mm256_scalef_pd(y.raw, n.raw)};
}
template <std::size_t kLanes>
HWY_INLINE hn::Vec128<double, kLanes> ScaleLanesF64(hn::Vec128<double, kLanes> y,
                                                    hn::Vec128<double, kLanes> n) {
  return hn::Vec128<double, kLanes>{_mm_scalef_pd(y.raw, n.raw)};
}

/// y · 2^n, rounded once, for y in [1/2, 2] and integers n in [-1077, 1025].
template <class D, class V>
HWY_INLINE V ScaleByPowerOfTwoF64(D /*d*/, V y, V n) {
  return ScaleLanesF64(y, n);
}
#else
template <class D, class V>
HWY_INLINE V ScaleByPowerOfTwoF64(D d, V y, V n) {
  // Two factors: the first product is exact, the second one rounds once, subnormal results included.
  const auto shift = hn::Set(d, kRoundingShiftF64);
  const auto first = hn::Sub(hn::MulAdd(n, hn::Set(d, 0.5), shift), shift);
  return hn::Mul(hn::Mul(y, PowerOfTwoF64(d, first)), PowerOfTwoF64(d, hn::Sub(n, first)));
}
#endif

/// x = n ln 2 + high + low for an integer n, |high| ≤ 0.3467. `high` is exact; `more` = e^(high + low) − 1 −
/// high.
template <class V>
struct ReducedExponent {
  V n, high, more;
};

template <class D, class V>
HWY_INLINE ReducedExponent<V> ReduceExponent(D d, V x) {
  const auto shift = hn::Set(d, kRoundingShiftF64);
  const auto n = hn::Sub(hn::MulAdd(x, hn::Set(d, 0x1.71547652b82fep+0), shift), shift);
  const auto high = hn::NegMulAdd(n, hn::Set(d, kLn2High), x);
  const auto low = hn::Mul(n, hn::Set(d, -kLn2Low));
  const auto r = hn::Add(high, low);
  // (e^r − 1 − r) / r², with an error of 2^-60 of e^r.
  const auto q =
      Polynomial(d, r, 0.5, 0x1.555555555555bp-3, 0x1.5555555555503p-5, 0x1.111111110ec58p-7,
                 0x1.6c16c16c30259p-10, 0x1.a01a01b37fcc7p-13, 0x1.a01a01371525bp-16, 0x1.71ddf01d5907dp-19,
                 0x1.27e5b358341b4p-22, 0x1.af6bed5168a81p-26, 0x1.1e3e6f075aa3p-29);
  return {n, high, hn::MulAdd(hn::Mul(r, r), q, low)};
}

/// e^x. Overflows to inf above 709.7827.
template <F64Lanes D, class V>
HWY_INLINE V Exp(D d, V x) {
  // The result is 0 or inf outside these bounds.
  const auto clamped = hn::Min(hn::Set(d, 710.0), hn::Max(hn::Set(d, -746.0), x));
  const auto e = ReduceExponent(d, clamped);
  // 1 + high = sum + rest, exactly.
  const auto one = hn::Set(d, 1.0);
  const auto sum = hn::Add(one, e.high);
  const auto rest = hn::Add(hn::Sub(one, sum), e.high);
  const auto y = ScaleByPowerOfTwoF64(d, hn::Add(sum, hn::Add(rest, e.more)), e.n);
  return hn::IfThenElse(hn::IsNaN(x), hn::Add(x, x), y);
}

/// The logarithm of x in f32 or f64, given `y` for positive finite x: -inf for zeros, NaN for negative
/// values.
template <class D, class V>
HWY_INLINE V LogOrSpecial(D d, V x, V y) {
  using Limits = std::numeric_limits<hn::TFromD<D>>;
  const auto inf = hn::Set(d, Limits::infinity());
  y = hn::IfThenElse(hn::Eq(x, inf), inf, y);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(inf), y);
  y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, Limits::quiet_NaN()), y);
  return hn::IfThenElse(hn::IsNaN(x), hn::Add(x, x), y);
}

/// The natural logarithm: -inf for zeros, NaN for negative values.
template <F64Lanes D, class V>
HWY_INLINE V Log(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  constexpr std::uint64_t kOne = 0x3ff0000000000000, kRootHalf = 0x3fe6a09e667f3bcd;
  const auto is_subnormal = hn::Lt(x, hn::Set(d, 0x1p-1022));
  const auto bits = hn::BitCast(du, hn::IfThenElse(is_subnormal, hn::Mul(x, hn::Set(d, 0x1p54)), x));
  // x = m × 2^e with m in [√½, √2). The field of e + 1023 becomes the last bits of 2^52 + e + 1023.
  const auto raised = hn::Add(bits, hn::Set(du, kOne - kRootHalf));
  const auto m =
      hn::BitCast(d, hn::Add(hn::And(raised, hn::Set(du, 0x000fffffffffffff)), hn::Set(du, kRootHalf)));
  const auto field = hn::BitCast(d, hn::Or(hn::ShiftRight<52>(raised), hn::BitCast(du, hn::Set(d, 0x1p52))));
  const auto e =
      hn::Sub(field, hn::IfThenElse(is_subnormal, hn::Set(d, 0x1p52 + 1023 + 54), hn::Set(d, 0x1p52 + 1023)));
  // With s = f / (2 + f): log(1 + f) = 2 artanh s = f − f²/2 + s (f²/2 + s² p(s²)). The error of p is 2^-59
  // of it.
  const auto f = hn::Sub(m, hn::Set(d, 1.0));
  const auto s = hn::Div(f, hn::Add(f, hn::Set(d, 2.0)));
  const auto z = hn::Mul(s, s);
  const auto p =
      Polynomial(d, z, 0x1.5555555555592p-1, 0x1.999999997ff19p-2, 0x1.24924941e155cp-2, 0x1.c71c52144dcfdp-3,
                 0x1.74663cef3c2a6p-3, 0x1.39a1e87508544p-3, 0x1.2f03bf1249cc6p-3);
  const auto half = hn::Mul(f, hn::Set(d, 0.5));
  const auto even = hn::MulAdd(z, p, hn::Mul(half, f));
  auto low = hn::MulAdd(s, even, hn::Mul(e, hn::Set(d, kLn2Low)));
  low = hn::NegMulAdd(half, f, low);
  // e ln 2 + f = sum + rest, exactly.
  const auto high = hn::Mul(e, hn::Set(d, kLn2High));
  const auto sum = hn::Add(high, f);
  const auto rest = hn::Sub(f, hn::Sub(sum, high));
  return LogOrSpecial(d, x, hn::Add(sum, hn::Add(rest, low)));
}

/// The hyperbolic tangent: t / (t + 2) with t = e^2|x| − 1.
template <F64Lanes D, class V>
HWY_INLINE V Tanh(D d, V x) {
  const auto one = hn::Set(d, 1.0), two = hn::Set(d, 2.0);
  const auto abs = hn::Abs(x);
  // From 19.1 on the result is 1.
  const auto e = ReduceExponent(d, hn::Min(hn::Set(d, 40.0), hn::Add(abs, abs)));
  // t = top + top_rest. 2^n − 1 is exact where it matters, and so is its sum with 2^n high in two parts.
  const auto power = PowerOfTwoF64(d, e.n);
  const auto whole = hn::Sub(power, one);
  const auto scaled = hn::Mul(power, e.high);
  const auto sum = hn::Add(whole, scaled);
  const auto rest = hn::MulAdd(power, e.more, hn::Sub(scaled, hn::Sub(sum, whole)));
  const auto top = hn::Add(sum, rest);
  const auto top_rest = hn::Sub(rest, hn::Sub(top, sum));
  // t + 2 = bottom + bottom_rest.
  const auto bottom = hn::Add(top, two);
  const auto part = hn::Sub(bottom, top);
  const auto bottom_rest =
      hn::Add(top_rest, hn::Add(hn::Sub(top, hn::Sub(bottom, part)), hn::Sub(two, part)));
  // Adds the quotient of the remainder of the upper parts.
  const auto inverse = hn::Div(one, bottom);
  const auto quotient = hn::Mul(top, inverse);
  const auto left =
      hn::Add(hn::NegMulAdd(quotient, bottom, top), hn::NegMulAdd(quotient, bottom_rest, top_rest));
  const auto y = hn::CopySignToAbs(hn::MulAdd(left, inverse, quotient), x);
  return hn::IfThenElse(hn::IsNaN(x), hn::Add(x, x), y);
}

/// The normal distribution Φ(x): ½ + x·p(x²) within ±1, and beyond e^(−t²/2)·q(u)/(t + 5), t = |x|, u = (t −
/// 5)/(t + 5), or 1 minus that, which does not cancel. From −40 on the result is 0.
template <F64Lanes D, class V>
HWY_INLINE V NormalCdf(D d, V x) {
  const auto one = hn::Set(d, 1.0), shift = hn::Set(d, 5.0);
  const auto p = Polynomial(d, hn::Mul(x, x), 0x1.9884533d43651p-2, -0x1.1058377e2cedfp-4,
                            0x1.46d042976901p-7, -0x1.37403f6b93143p-10, 0x1.e42b0d4b14d39p-14,
                            -0x1.3ce8f9bacee1ep-17, 0x1.6589f17ce2693p-21, -0x1.621cc567a99f7p-25,
                            0x1.380b151d37375p-29, -0x1.e69d43072e1f8p-34, 0x1.1eb48cc19cdecp-38);
  const auto near = hn::MulAdd(x, p, hn::Set(d, 0.5));
  const auto t = hn::Min(hn::Abs(x), hn::Set(d, 40.0));
  const auto r = hn::Div(one, hn::Add(t, shift));
  const auto q = Polynomial(
      d, hn::Mul(hn::Sub(t, shift), r), 0x1.89d3abe1f95aep-1, -0x1.54ad03f27ca18p-1, 0x1.fb31653876f88p-2,
      -0x1.410ed5f875943p-2, 0x1.51f6329f01c13p-3, -0x1.1b1c254ca45a4p-4, 0x1.54b4d4f484ed8p-6,
      -0x1.88590e976a5f8p-9, -0x1.a250376dfdd57p-11, 0x1.1daf1ab6ba9f1p-11, -0x1.f21498889d9f2p-15,
      -0x1.a1700169574d1p-15, 0x1.17df52fc66f23p-16, 0x1.0b12540da30a6p-18, -0x1.73e8005219104p-19,
      -0x1.66cb4c21bb3d4p-22, 0x1.d4fc8c898a7cfp-22, 0x1.513d0baf8c3a2p-25, -0x1.3083295f69866p-24,
      -0x1.f38e39a7169a3p-28, 0x1.8a4e8c9022ad5p-27, 0x1.4198241dc960bp-30, -0x1.87f6a3ba263dap-30);
  // The bell with the rounding error of t².
  const auto square = hn::Mul(t, t), half = hn::Set(d, 0.5);
  const auto bell = Exp(d, hn::Neg(hn::Mul(square, half)));
  const auto exact = hn::NegMulAdd(hn::Mul(bell, half), hn::MulSub(t, t, square), bell);
  const auto tail = hn::Mul(exact, hn::Mul(q, r));
  const auto far = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  const auto y = hn::IfThenElse(hn::Lt(hn::Abs(x), one), near, far);
  return hn::IfThenElse(hn::IsNaN(x), hn::Add(x, x), y);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_MATH_F64_INL_H_
