#include "core/numeric/row_functions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/numeric/row_functions.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/encode_blocks-inl.h"
#include "mantissa/core/numeric/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE testing::RowReductions ReduceRow(const T* p, const T* q, std::size_t n) {
  const auto load = [p](auto d, std::size_t i, std::size_t count)
                        HWY_ATTR { return LoadCount(d, p + i, count); };
  LaneSum<T> product;
  product.AddProduct(p, q, n);
  return {SumRow<T>(n, load), product.Total(), MaxRow(p, n)};
}

testing::RowReductions ReduceF32(const float* p, const float* q, std::size_t n) {
  return ReduceRow(p, q, n);
}
testing::RowReductions ReduceF64(const double* p, const double* q, std::size_t n) {
  return ReduceRow(p, q, n);
}
void EncodeBlocksImpl(BlockFormat format, const float* row, std::size_t n, float tensor_scale,
                      std::uint8_t* elements, std::uint8_t* scales, ScaleRounding rounding) {
  WithFormat(format, [&](auto f) HWY_ATTR {
    using Maxima = BlockMaxima<f()>;
    const BlockRounder<f()> rounder(tensor_scale, rounding);
    for (std::size_t begin = 0; begin < n; begin += Maxima::kMost) {
      Maxima maxima(std::min(Maxima::kMost, n - begin));
      maxima.Add(row + begin);
      EncodeRow<f()>(rounder, BlockScales<f()>(rounder, maxima), row + begin,
                     std::min(Maxima::kMost, n - begin), nullptr,
                     elements + begin * traits(f()).element_bits / 8, scales + begin / Maxima::kBlock);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa {

HWY_EXPORT(ReduceF32);
HWY_EXPORT(ReduceF64);
HWY_EXPORT(EncodeBlocksImpl);

namespace testing {

RowReductions reduce_row(const float* p, const float* q, std::size_t n, SimdTarget target) {
  return HWY_DISPATCH_TABLE(ReduceF32)[simd_index(target)](p, q, n);
}

RowReductions reduce_row(const double* p, const double* q, std::size_t n, SimdTarget target) {
  return HWY_DISPATCH_TABLE(ReduceF64)[simd_index(target)](p, q, n);
}

void encode_blocks(BlockFormat f, const float* row, std::size_t n, std::uint8_t* elements,
                   std::uint8_t* scales, float tensor_scale, SimdTarget target, ScaleRounding rounding) {
  HWY_DISPATCH_TABLE(EncodeBlocksImpl)
  [simd_index(target)](f, row, n, tensor_scale, elements, scales, rounding);
}

}  // namespace testing
}  // namespace mantissa
#endif
