// The largest magnitudes of elements that share a scale, where these are more than one load holds.
#if defined(MANTISSA_KERNELS_BLOCKS_SHARED_MAXIMA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_BLOCKS_SHARED_MAXIMA_INL_H_
#undef MANTISSA_KERNELS_BLOCKS_SHARED_MAXIMA_INL_H_
#else
#define MANTISSA_KERNELS_BLOCKS_SHARED_MAXIMA_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/factor-inl.h"
#include "mantissa/core/numeric/scaled-inl.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/cpu/piece.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Returns the largest magnitude of row `row`, as bits (BlockRounder::Largest).
template <BlockFormat F>
std::uint32_t LargestOfRow(ConstMatrix from, std::size_t width, std::size_t row) {
  using Rounder = mantissa::HWY_NAMESPACE::BlockRounder<F>;
  const typename Rounder::D d;
  const typename Rounder::DU du;
  HWY_ALIGN float buffer[kPiece];
  auto most = hn::Zero(du);
  for (std::size_t i = 0; i < width; i += kPiece) {
    const std::size_t n = std::min(kPiece, width - i);
    const float* values =
        mantissa::HWY_NAMESPACE::ViewRow<float>(from.data, from.type, row * width + i, n, buffer);
    for (std::size_t j = 0; j < n; j += hn::Lanes(d))
      most = Rounder::Largest(most, mantissa::HWY_NAMESPACE::LoadCount(d, values + j, n - j));
  }
  return hn::GetLane(hn::MaxOfLanes(du, most));
}

/// Sets most[0, n) to the largest magnitudes of n columns in rows [begin, end), as bits. load(first, last)
/// fills `buffer` with up to kLongestScale rows, kColumnPiece apart; the last ones stay there.
template <BlockFormat F, class Load>
HWY_INLINE void LargestOfColumns(std::size_t begin, std::size_t end, std::size_t n, const Load& load,
                                 const float* HWY_RESTRICT buffer, std::uint32_t* HWY_RESTRICT most) {
  using Rounder = mantissa::HWY_NAMESPACE::BlockRounder<F>;
  const typename Rounder::D d;
  const typename Rounder::DU du;
  for (std::size_t first = begin; first < end; first += kLongestScale) {
    const std::size_t last = std::min(end, first + kLongestScale);
    load(first, last);
    for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
      auto largest = first == begin ? hn::Zero(du) : hn::Load(du, most + i);
      for (std::size_t row = 0; row < last - first; ++row) {
        const auto x = mantissa::HWY_NAMESPACE::LoadCount(d, buffer + row * kColumnPiece + i, n - i);
        largest = Rounder::Largest(largest, x);
      }
      hn::Store(largest, du, most + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // per target
