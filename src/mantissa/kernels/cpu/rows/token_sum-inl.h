// The order of sums over tokens (docs/numerics.md, "Sums over tokens"): blocks of 256 tokens into leaves,
// leaves into the result. The gradients of gains and biases use it.
#if defined(MANTISSA_KERNELS_CPU_TOKEN_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_TOKEN_SUM_INL_H_
#undef MANTISSA_KERNELS_CPU_TOKEN_SUM_INL_H_
#else
#define MANTISSA_KERNELS_CPU_TOKEN_SUM_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/cpu/rows/rows-inl.h"
#include "mantissa/kernels/cpu/tasks.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// result[0, width) = a sum over the tokens of `extent`, added to the previous value if `accumulate` is set.
/// `add_block(begin, end, leaf)` adds the sum of tokens [begin, end) to leaf[0, width). At most kSumColumns
/// columns.
template <class T, class AddBlock>
HWY_INLINE void SumBlocks(const Extent& extent, std::size_t width, bool accumulate, T* result,
                          const AddBlock& add_block) {
  alignas(64) T leaf[kSumColumns];
  if (!accumulate) std::fill_n(result, width, T{0});
  const std::size_t rows_per_leaf = static_cast<std::size_t>(extent.rows_per_leaf);
  for (std::size_t first = 0; first < extent.rows.size(); first += rows_per_leaf) {
    std::fill_n(leaf, width, T{0});
    for (const Row& row : extent.rows.subspan(first, std::min(rows_per_leaf, extent.rows.size() - first))) {
      const std::int64_t row_end = row.begin + row.length;
      for (std::int64_t block = row.begin; block < row_end; block += kSumBlock) {
        add_block(static_cast<std::size_t>(block),
                  static_cast<std::size_t>(std::min(block + kSumBlock, row_end)), leaf);
      }
    }
    AddRow(leaf, width, result);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_TOKEN_SUM_INL_H_
