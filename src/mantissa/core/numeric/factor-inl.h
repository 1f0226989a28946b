// Rounds rows that are operands of products (core/numeric/factor.h). Included once per instruction set
// (Highway's -inl.h idiom).
#if defined(MANTISSA_NUMERIC_FACTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_FACTOR_INL_H_
#undef MANTISSA_NUMERIC_FACTOR_INL_H_
#else
#define MANTISSA_NUMERIC_FACTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <type_traits>

#include "mantissa/core/numeric/convert-inl.h"
#include "mantissa/core/numeric/factor.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Sets row[i] = f(d, row[i]), vector by vector.
template <class T, class F>
HWY_INLINE void RewriteRow(T* HWY_RESTRICT row, std::size_t n, const F& f) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(d, hn::LoadU(d, row + i)), d, row + i);
  if (i < n) StoreCount(f(d, LoadCount(d, row + i, n - i)), d, row + i, n - i);
}

/// Clamps row[0, n) to the finite range of `type`, in place. Keeps NaN.
template <class T>
HWY_INLINE void ClampRow(T* HWY_RESTRICT row, std::size_t n, Scalar type) {
  const T most = static_cast<T>(traits(type).max_finite);
  RewriteRow(row, n, [most](auto d, auto v) HWY_ATTR {
    const auto limit = hn::Set(d, most);
    const auto clamped = hn::Min(hn::Max(v, hn::Neg(limit)), limit);
    return hn::IfThenElse(hn::IsNaN(v), v, clamped);
  });
}

/// Replaces values below the smallest normal of `type` by a zero of the same sign, in place.
template <class T>
HWY_INLINE void FlushRow(T* HWY_RESTRICT row, std::size_t n, Scalar type) {
  const T least = static_cast<T>(std::ldexp(1.0, traits(type).min_normal_exp));
  RewriteRow(row, n, [least](auto d, auto v) HWY_ATTR {
    const auto small = hn::Lt(hn::Abs(v), hn::Set(d, least));
    return hn::IfThenElse(small, hn::CopySign(hn::Zero(d), v), v);
  });
}

/// Rounds row[0, n) to nearest even on the grid of `type`, in place, with saturation and flushing of
/// subnormals if requested.
template <class T>
HWY_INLINE void RoundRowAs(T* HWY_RESTRICT row, std::size_t n, Scalar type, bool saturate,
                           bool flush_subnormals) {
  if (saturate) ClampRow(row, n, type);
  RoundRow<T>(row, n, type);
  if (flush_subnormals) FlushRow(row, n, type);
}

/// Replaces every element of row[0, n) by its part `part`, in place.
template <class T>
HWY_INLINE void FactorRow(T* HWY_RESTRICT row, std::size_t n, const Factor& factor, int part) {
  if (factor.parts == 1) {
    if (factor.plain()) return RoundRow<T>(row, n, factor.format);
    return RoundRowAs<T>(row, n, factor.format, factor.saturate, factor.flush_subnormals);
  }
  if constexpr (std::is_same_v<T, float>) {
    RewriteRow(row, n, [part](auto d, auto v) HWY_ATTR {
      const auto first = RoundLanes<Scalar::bf16>(d, v);
      auto rounded = first, rest = v;
      for (int p = 0; p < part; ++p) {
        rest = hn::Sub(rest, rounded);  // exact
        rounded = RoundLanes<Scalar::bf16>(d, rest);
      }
      return part == 0 ? rounded : hn::IfThenElseZero(hn::IsFinite(first), rounded);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_FACTOR_INL_H_
