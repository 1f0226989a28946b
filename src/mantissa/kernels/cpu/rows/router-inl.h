// The softmax of a router's logits.
#if defined(MANTISSA_KERNELS_CPU_ROWS_ROUTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ROWS_ROUTER_INL_H_
#undef MANTISSA_KERNELS_CPU_ROWS_ROUTER_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ROWS_ROUTER_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>
#include <vector>

#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/core/numeric/math-inl.h"
#include "mantissa/kernels/cpu/rows/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

using mantissa::HWY_NAMESPACE::LaneSum;
using mantissa::HWY_NAMESPACE::MaxRow;

inline std::size_t At(const ConstMatrix& m, std::size_t row) {
  return row * static_cast<std::size_t>(m.ld);
}
inline std::size_t At(const Matrix& m, std::size_t row) {
  return row * static_cast<std::size_t>(m.ld);
}

/// Loads the logits of token t, rounded to `interior`, into `l`, and their exponentials into `e`. Returns the
/// sum of these.
template <class T>
T Exponentials(ConstMatrix logits, Scalar interior, std::size_t t, std::vector<T>& l, std::vector<T>& e) {
  LoadRow(logits.data, logits.type, At(logits, t), l.size(), l.data());
  if (!holds(interior, std::is_same_v<T, double> ? Scalar::f64 : Scalar::f32))
    RoundRow(l.data(), l.size(), interior);
  const T largest = MaxRow(l.data(), l.size());
  ForEachVector<T>(l.size(), [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(mantissa::HWY_NAMESPACE::Exp(d, hn::Sub(hn::LoadU(d, l.data() + i), hn::Set(d, largest))), d,
               e.data() + i);
  });
  LaneSum<T> sum;
  sum.Add(e.data(), e.size());
  return sum.Total();
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif
