// Counts of values that leave the range of a format when they are rounded to it.
#if defined(MANTISSA_KERNELS_CPU_LOSS_COUNT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_LOSS_COUNT_INL_H_
#undef MANTISSA_KERNELS_CPU_LOSS_COUNT_INL_H_
#else
#define MANTISSA_KERNELS_CPU_LOSS_COUNT_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>

#include "mantissa/kernels/loss_count.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// Counts for values that became after[0, n) when they were rounded to `type`.
template <class T>
RangeCount CountRange(const T* before, const T* after, std::size_t n, Scalar type) {
  const T most = static_cast<T>(traits(type).max_finite);
  RangeCount count;
  for (std::size_t i = 0; i < n; ++i) {
    count.flushed += before[i] != 0 && after[i] == 0;
    count.saturated += std::isfinite(before[i]) && std::abs(before[i]) > most && !(std::abs(after[i]) < most);
  }
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_LOSS_COUNT_INL_H_
