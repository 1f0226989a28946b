#include "mantissa/core/numeric/row_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/core/numeric/row_math.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/core/numeric/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {

template <class D>
HWY_INLINE hn::Vec<D> Apply(D d, MathFunction function, hn::Vec<D> v) {
  switch (function) {
    case MathFunction::exp:
      return Exp(d, v);
    case MathFunction::log:
      return Log(d, v);
    case MathFunction::tanh:
      return Tanh(d, v);
    case MathFunction::sigmoid:
      return Sigmoid(d, v);
    case MathFunction::rsqrt:
      return Rsqrt(d, v);
    case MathFunction::sin:
      return Sin(d, v);
    case MathFunction::cos:
      return Cos(d, v);
    case MathFunction::normal_cdf:
      return NormalCdf(d, v);
  }
  return v;
}

template <class T>
HWY_INLINE void MapRow(MathFunction function, const T* in, std::size_t n, T* out) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < n; i += lanes)
    StoreCount(Apply(d, function, LoadCount(d, in + i, n - i)), d, out + i, n - i);
}

void MapF32(MathFunction function, const float* in, std::size_t n, float* out) {
  MapRow(function, in, n, out);
}
void MapF64(MathFunction function, const double* in, std::size_t n, double* out) {
  MapRow(function, in, n, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa {

HWY_EXPORT(MapF32);
HWY_EXPORT(MapF64);

void map_row(MathFunction function, const float* in, std::size_t n, float* out, SimdTarget target) {
  HWY_DISPATCH_TABLE(MapF32)[simd_index(target)](function, in, n, out);
}

void map_row(MathFunction function, const double* in, std::size_t n, double* out, SimdTarget target) {
  HWY_DISPATCH_TABLE(MapF64)[simd_index(target)](function, in, n, out);
}

}  // namespace mantissa
#endif
