#include "mantissa/kernels/token_sum.h"

#include <algorithm>

#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/rows/token_sum.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/rows/rows-inl.h"
#include "mantissa/kernels/cpu/rows/token_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// Adds the chain of one block, tokens [begin, end) and columns [c, c + width), to `leaf`.
template <class T>
void AddBlock(const TokenSum& s, std::size_t begin, std::size_t end, std::size_t c, std::size_t width,
              T* leaf) {
  alignas(64) T chain[kSumColumns], buffer[kSumColumns];
  std::fill_n(chain, width, T{0});
  for (std::size_t t = begin; t < end; ++t)
    AddRow(ViewRow<T>(s.x.data, s.x.type, t * static_cast<std::size_t>(s.x.ld) + c, width, buffer), width,
           chain);
  AddRow(chain, width, leaf);
}

template <class T>
void SumColumns(const Extent& extent, const TokenSum& s, std::size_t c, std::size_t width) {
  SumBlocks(extent, width, s.accumulate, static_cast<T*>(s.sum.data) + c,
            [&](std::size_t begin, std::size_t end, T* leaf)
                HWY_ATTR { AddBlock(s, begin, end, c, width, leaf); });
}

void SumRange(const Extent& extent, const TokenSum& s, std::size_t c, std::size_t width) {
  s.sum.type == Scalar::f64 ? SumColumns<double>(extent, s, c, width)
                            : SumColumns<float>(extent, s, c, width);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(SumRange);

void token_sum(const Context& ctx, const Extent& extent, const TokenSum& s) {
  const auto range = HWY_DISPATCH_TABLE(SumRange)[ctx.target()];
  for_column_ranges(ctx, s.columns, extent.tokens,
                    [&](std::size_t c, std::size_t width) { range(extent, s, c, width); });
}

}  // namespace mantissa::kernels
#endif
