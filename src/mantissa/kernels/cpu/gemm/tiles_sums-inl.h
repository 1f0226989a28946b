// The sums of a panel of tiles, 32 columns wide, on their way to C: added, transposed, copied, or written
// past the caches.
#if defined(MANTISSA_KERNELS_CPU_GEMM_TILES_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_TILES_SUMS_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_TILES_SUMS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_TILES_SUMS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include "mantissa/kernels/cpu/gemm/epilogue-inl.h"
#include "mantissa/kernels/cpu/gemm/pack-inl.h"
#include "mantissa/kernels/cpu/gemm/tiles_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace tiles {
namespace hn = hwy::HWY_NAMESPACE;

/// Writes the sums of `n` numbers to `to`, which may be x.
inline void AddRow(const float* x, const float* HWY_RESTRICT y, std::size_t n, float* to) {
  const hn::ScalableTag<float> d;
  std::size_t i = 0;
  for (; i + HWY_LANES(float) <= n; i += HWY_LANES(float))
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, to + i);
  for (; i < n; ++i) to[i] = x[i] + y[i];
}
inline void AddRows(const float* HWY_RESTRICT x, std::size_t n, float* to) {
  AddRow(to, x, n, to);
}

inline void Copy(const SumRows<float>& from, const SumRows<float>& to, std::size_t rows,
                 std::size_t columns) {
  for (std::size_t i = 0; i < rows; ++i) std::copy_n(from.Row(i), columns, to.Row(i));
}

/// Writes rows of a panel's columns, the vectors sum(d, row, column), to memory, past the caches. The rows
/// begin with a cache line. Other threads see them after hwy::FlushStream().
template <class Sum>
HWY_INLINE void Stream(const SumRows<float>& to, std::size_t rows, const Sum& sum) {
  const hn::ScalableTag<float> d;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t j = 0; j < kSides; j += HWY_LANES(float)) hn::Stream(sum(d, r, j), d, to.Row(r) + j);
  }
}

/// Transposes 32 × 32 sums.
inline void TransposeSums(const float* HWY_RESTRICT from, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  constexpr std::size_t kPiece = 16 / sizeof(float);
  for (std::size_t row = 0; row < kSides; row += HWY_LANES(float)) {
    for (std::size_t j = 0; j < kSides; j += kPiece) {
      TransposePieces(
          d, [&](std::size_t i) { return from + (row + i) * kSides + j; }, j,
          [&](std::size_t at, hn::Vec<decltype(d)> sums)
              HWY_ATTR { hn::Store(sums, d, to + at * kSides + row); });
    }
  }
}

}  // namespace tiles
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_TILES_SUMS_INL_H_
