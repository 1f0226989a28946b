// Rounds single vectors and numbers to a format known only at run time. For simulated formats; too slow for
// hot loops.
#if defined(MANTISSA_NUMERIC_ROUND_VALUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_ROUND_VALUE_INL_H_
#undef MANTISSA_NUMERIC_ROUND_VALUE_INL_H_
#else
#define MANTISSA_NUMERIC_ROUND_VALUE_INL_H_
#endif

#include <hwy/highway.h>

#include "mantissa/core/numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {

/// Rounds `v` to nearest even on the grid of `type`.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RoundVector(D d, V v, Scalar type) {
  HWY_ALIGN hn::TFromD<D> row[hn::MaxLanes(d)];
  hn::Store(v, d, row);
  RoundRow<hn::TFromD<D>>(row, hn::Lanes(d), type);
  return hn::Load(d, row);
}

/// Rounds `x` to nearest even on the grid of `type`.
template <class T>
HWY_INLINE T RoundNumber(T x, Scalar type) {
  RoundRow<T>(&x, 1, type);
  return x;
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_ROUND_VALUE_INL_H_
