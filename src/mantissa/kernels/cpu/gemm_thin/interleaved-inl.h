// Thin products (kernels/cpu/gemm_thin/thin-inl.h) with interleaved columns (kernels/interleave.h), which are
// read in the order of their addresses.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_INTERLEAVED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_INTERLEAVED_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_INTERLEAVED_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_INTERLEAVED_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/cpu/gemm_thin/sums-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/thin-inl.h"
#include "mantissa/kernels/cpu/stream_ahead.h"
#include "mantissa/kernels/interleave.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A word is one f32 number: calls put(term, vector).
struct PlainWords {
  static constexpr std::size_t kTerms = 1;
  template <class VU, class Put>
  static HWY_INLINE void Each(VU word, std::size_t term, std::size_t /*terms*/, const Put& put) {
    put(term, hn::BitCast(hn::ScalableTag<float>(), word));
  }
};
/// A word is two neighbours in a 16-bit format. The second one may be missing.
template <class Halves>
struct PairWords {
  static constexpr std::size_t kTerms = 2;
  template <class VU, class Put>
  static HWY_INLINE void Each(VU word, std::size_t term, std::size_t terms, const Put& put) {
    const hn::ScalableTag<float> d;
    put(term, Halves::Low(d, word));
    if (terms > 1) put(term + 1, Halves::High(d, word));
  }
};

/// The vectors of a group of columns, and the rows of a strip of `rows` whose sums fit the registers with
/// them.
inline constexpr std::size_t kGroupVectors = static_cast<std::size_t>(kInterleaved) / HWY_LANES(float);
template <SumOrder kOrder>
constexpr std::size_t interleaved_rows_at_once(std::size_t rows) {
  return std::max<std::size_t>(thin_rows_at_once<kOrder>(rows) / kGroupVectors, 1);
}

/// ThinBlock for a group of columns: `words` are those of `depth` terms.
template <SumOrder kOrder, std::size_t kRows, std::size_t kStrip, class Words>
HWY_NOINLINE void InterleavedBlock(std::size_t depth, const float* HWY_RESTRICT a,
                                   const std::uint32_t* HWY_RESTRICT words, StreamAhead ahead,
                                   float* HWY_RESTRICT out, std::size_t ld, TileStore store) {
  const hn::ScalableTag<std::uint32_t> du;
  using V = hn::Vec<hn::ScalableTag<float>>;
  constexpr auto kColumns = static_cast<std::size_t>(kInterleaved);
  constexpr std::size_t kLanes = HWY_LANES(float), kWords = 4, kStep = kWords * Words::kTerms;
  using Sums = ThinSums<kOrder, kRows, float>;
  Sums sums[kGroupVectors];
  const auto store_all = [&] HWY_ATTR {
    HWY_UNROLL(4)
    for (std::size_t v = 0; v < kGroupVectors; ++v) sums[v].Store(out + v * kLanes, ld, store);
    store = TileStore::add;
  };
  const auto add_word = [&](std::size_t w, std::size_t terms) HWY_ATTR {
    HWY_UNROLL(4)
    for (std::size_t v = 0; v < kGroupVectors; ++v) {
      Words::Each(hn::LoadU(du, words + w * kColumns + v * kLanes), w * Words::kTerms, terms,
                  [&](std::size_t term, V x) HWY_ATTR { sums[v].Add(term, a + term * kStrip, x); });
    }
  };
  const auto block_ends = [](std::size_t k) { return Sums::kInBlocks && k > 0 && k % kTileBlock == 0; };
  std::size_t k = 0;
  for (; k + kStep <= depth; k += kStep, a += kStep * kStrip, words += kWords * kColumns) {
    if (block_ends(k)) store_all();
    ahead.Ask<kWords * kColumns * sizeof *words>();
    HWY_UNROLL(4)
    for (std::size_t w = 0; w < kWords; ++w) add_word(w, Words::kTerms);
  }
  if (k < depth && block_ends(k)) store_all();
  for (std::size_t w = 0; k < depth; ++w, k += Words::kTerms) add_word(w, depth - k);
  store_all();
}

/// InterleavedBlock for a strip of `rows` ≤ kStripRows rows, in passes of as many as are summed at once.
template <SumOrder kOrder, class Words>
void InterleavedStrip(std::size_t rows, std::size_t depth, const float* a, const std::uint32_t* words,
                      StreamAhead ahead, float* out, std::size_t ld, TileStore store) {
  const auto strip = [&](auto strip_rows) HWY_ATTR {
    constexpr std::size_t kStrip = strip_rows(), kRows = interleaved_rows_at_once<kOrder>(kStrip);
    for (std::size_t i = 0; i < kStrip; i += kRows)
      InterleavedBlock<kOrder, kRows, kStrip, Words>(depth, a + i, words, ahead, out + i * ld, ld, store);
  };
  switch (rows) {
    case 1:
      return strip(std::integral_constant<std::size_t, 1>());
    case 2:
      return strip(std::integral_constant<std::size_t, 2>());
    case 4:
      return strip(std::integral_constant<std::size_t, 4>());
    default:
      return strip(std::integral_constant<std::size_t, 8>());
  }
}

/// InterleavedStrip for elements of `type` at `group`.
template <SumOrder kOrder>
void MultiplyInterleaved(std::size_t rows, Scalar type, const std::uint8_t* group, std::size_t depth,
                         const float* a, StreamAhead ahead, float* out, std::size_t ld, TileStore store) {
  const auto* words = reinterpret_cast<const std::uint32_t*>(group);
  if (type == Scalar::f32)
    return InterleavedStrip<kOrder, PlainWords>(rows, depth, a, words, ahead, out, ld, store);
  if (type == Scalar::bf16)
    return InterleavedStrip<kOrder, PairWords<BfloatHalves>>(rows, depth, a, words, ahead, out, ld, store);
  InterleavedStrip<kOrder, PairWords<HalfHalves>>(rows, depth, a, words, ahead, out, ld, store);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_INTERLEAVED_INL_H_
