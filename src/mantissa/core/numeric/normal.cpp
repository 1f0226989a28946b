#include "mantissa/core/numeric/normal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/core/numeric/normal.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "mantissa/core/numeric/math-inl.h"
#include "mantissa/core/numeric/stochastic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {

/// The upper 53 bits of two words as an integer. The first word is in the lower half of the lane.
template <class D, class VU>
HWY_INLINE hn::Vec<D> Integer53(D d, VU words) {
  const hn::RebindToSigned<D> di;
  const auto swapped = hn::Or(hn::ShiftLeft<32>(words), hn::ShiftRight<32>(words));
  return hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<11>(swapped)));
}

/// √(−2 ln u) cos 2πv for u = (k + 1) 2^-53 and v = l 2^-53.
template <class D, class V>
HWY_INLINE V BoxMuller(D d, V k, V l) {
  const hn::RebindToUnsigned<D> du;
  const auto u = hn::Mul(hn::Add(k, hn::Set(d, 1.0)), hn::Set(d, 0x1p-53));
  const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0), Log(d, u)));
  // 4v quarter turns split exactly into n whole ones and a fraction.
  const auto shift = hn::Set(d, kRoundingShiftF64);
  const auto turns = hn::Mul(l, hn::Set(d, 0x1p-51));
  const auto shifted = hn::Add(turns, shift);
  const auto fraction = hn::Sub(turns, hn::Sub(shifted, shift));
  const auto angle = RadiansOfQuarters(d, fraction, hn::Zero(d), hn::BitCast(du, shifted));
  return hn::Mul(radius, SinOfAngle(d, angle, 1));
}

void NormalRow(const RandomStream& stream, std::uint64_t first, std::size_t n, double* out) {
  const hn::ScalableTag<double> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr std::size_t kChunk = 64;
  HWY_ALIGN std::uint64_t words[2 * kChunk];
  for (std::size_t done = 0; done < n; done += kChunk) {
    const std::size_t count = std::min(kChunk, n - done);
    RandomBlocks(stream, first + done, count, words);
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
      hn::Vec<decltype(du)> k, l;
      hn::LoadInterleaved2(du, words + 2 * i, k, l);
      StoreCount(BoxMuller(d, Integer53(d, k), Integer53(d, l)), d, out + done + i, count - i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa {

HWY_EXPORT(NormalRow);

void normal_row(const RandomStream& stream, std::uint64_t first, std::size_t n, double* out,
                SimdTarget target) {
  HWY_DISPATCH_TABLE(NormalRow)[simd_index(target)](stream, first, n, out);
}

}  // namespace mantissa
#endif
