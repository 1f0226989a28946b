// The running sums of thin products: a few rows times one vector of columns, in either order of summation.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_SUMS_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_SUMS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "mantissa/core/numeric/factor.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/cpu/gemm/microkernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Rows of a strip of `rows` that are summed at once: those whose sums fit the registers. In tile order a row
/// has two sums.
template <SumOrder kOrder>
constexpr std::size_t thin_rows_at_once(std::size_t rows) {
  return kOrder == SumOrder::chain ? rows : std::min<std::size_t>(rows, kMr > 8 ? 8 : 4);
}

/// Calls call(n) with the rows of a strip, a power of two up to kThinStrip (thin-inl.h), as a constant.
template <class Call>
HWY_INLINE void WithThinRows(std::size_t rows, const Call& call) {
  switch (rows) {
    case 1:
      return call(std::integral_constant<std::size_t, 1>());
    case 2:
      return call(std::integral_constant<std::size_t, 2>());
    case 4:
      return call(std::integral_constant<std::size_t, 4>());
    case 8:
      return call(std::integral_constant<std::size_t, 8>());
    default:
      return call(std::integral_constant<std::size_t, 16>());
  }
}

/// The sums of kRows rows. Terms must be added in ascending depth.
template <SumOrder kOrder, std::size_t kRows, class T>
class ThinSums {
 public:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  /// True if Store must be called after every kTileBlock terms.
  static constexpr bool kInBlocks = kOrder == SumOrder::tile;

  HWY_INLINE ThinSums() { Clear(); }

  /// Adds the products of a[0, kRows), at depth `k`, and `v`.
  HWY_INLINE void Add(std::size_t k, const T* HWY_RESTRICT a, V v) {
    V* HWY_RESTRICT sums = sums_[kInBlocks ? k % 2 : 0];
    HWY_UNROLL(16)
    for (std::size_t i = 0; i < kRows; ++i) sums[i] = hn::MulAdd(hn::Set(D(), a[i]), v, sums[i]);
  }

  /// Stores the sums, or adds them to what is there, and starts again from zero.
  HWY_INLINE void Store(T* HWY_RESTRICT out, std::size_t ld, TileStore store) {
    const D d;
    HWY_UNROLL(16)
    for (std::size_t i = 0; i < kRows; ++i) {
      T* to = out + i * ld;
      V sum = sums_[0][i];
      if constexpr (kInBlocks) sum = hn::Add(sum, sums_[1][i]);
      if (store == TileStore::add) {
        sum = hn::Add(hn::LoadU(d, to), sum);
      } else if constexpr (kInBlocks) {
        sum = hn::Add(hn::Zero(d), sum);
      }
      hn::StoreU(sum, d, to);
    }
    Clear();
  }

 private:
  HWY_INLINE void Clear() {
    HWY_UNROLL(2)
    for (std::size_t j = 0; j < (kInBlocks ? 2 : 1); ++j) {
      HWY_UNROLL(16)
      for (std::size_t i = 0; i < kRows; ++i) sums_[j][i] = hn::Zero(D());
    }
  }

  V sums_[kInBlocks ? 2 : 1][kRows];
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_SUMS_INL_H_
