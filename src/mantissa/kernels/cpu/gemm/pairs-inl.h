// Products in tile order on processors with VDPBF16PS (AVX512_BF16), which multiplies bf16 at twice the rate
// of f32 on some of them: packing of bf16 operands in pairs, and the tile of C.
//
// VDPBF16PS adds two products to an f32 sum by two fused multiply-adds, that of the high halves first. Pairs
// of terms (k, k + 2) and (k + 1, k + 3), the first term in the high half, so extend the chains over even and
// odd terms (SumOrder::tile) by two terms each. Four terms are a group of two pairs. A panel is
// [groups][2][kPanel] pairs after a head of one line, with zeros in the terms that are missing from the last
// group: they leave a chain as it is.
//
// VDPBF16PS takes subnormal factors and sums as zero. It is used where neither can occur
// (cpu/gemm_bf16-inl.h): its chains start from zero. Other panels are multiplied by fused multiply-adds.
#if defined(MANTISSA_KERNELS_CPU_GEMM_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_PAIRS_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_PAIRS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_PAIRS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/cpu/gemm/bf16-inl.h"
#include "mantissa/kernels/cpu/gemm/microkernel_tile-inl.h"
#include "mantissa/kernels/cpu/gemm/pack-inl.h"
#include "mantissa/kernels/guard_count.h"

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace pairs {
namespace hn = hwy::HWY_NAMESPACE;
using bf16::BfloatRow;
using bf16::ExponentAt;
using bf16::NeverSubnormal;
using bf16::Smallest;
using bf16::Word;

/// Terms of a group, and terms in whose place a panel has its head.
inline constexpr std::size_t kGroup = 4, kHead = 4;
/// Sides that are packed at once: few panels, because their lines share cache sets and must stay cached.
inline constexpr std::size_t kMostSides = 128;

constexpr std::size_t groups_of(std::size_t depth) {
  return (depth + kGroup - 1) / kGroup;
}
/// The terms, of two bytes, whose place a packed block takes.
constexpr std::size_t packed_depth(std::size_t depth) {
  return kHead + groups_of(depth) * kGroup;
}

/// Stores the first `width` of the vector's lanes.
HWY_INLINE void StorePairs(hn::Vec<hn::ScalableTag<Word>> v, std::size_t width, Word* HWY_RESTRICT to) {
  const hn::ScalableTag<Word> d;
  if (width == HWY_LANES(Word)) return hn::StoreU(v, d, to);
  hn::BlendedStore(v, hn::FirstN(d, width), d, to);
}

/// Returns the first `width` lanes, and zero in the others.
HWY_INLINE hn::Vec<hn::ScalableTag<Word>> FirstLanes(hn::Vec<hn::ScalableTag<Word>> v, std::size_t width) {
  const hn::ScalableTag<Word> d;
  return width == HWY_LANES(Word) ? v : hn::IfThenElseZero(hn::FirstN(d, width), v);
}

/// The pairs of a group from its terms as (k, k + 1) and (k + 2, k + 3), the first in the low half.
struct Group {
  using V = hn::Vec<hn::ScalableTag<Word>>;
  V even, odd;
  HWY_INLINE Group(V low, V high) {
    const hn::ScalableTag<Word> d;
    const V lower = hn::Set(d, 0xffff);
    even = hn::Or(hn::ShiftLeft<16>(low), hn::And(high, lower));
    odd = hn::Or(hn::AndNot(lower, low), hn::ShiftRight<16>(high));
  }
};

/// Packs sides [side, side + width) of a source whose depth is contiguous, width ≤ a vector's lanes, at index
/// `at` of a panel's pairs. Sides from `last` on are zero.
template <std::size_t kPanel>
HWY_NOINLINE void PackAcross(const PackSource& from, std::size_t side, std::size_t last,
                             std::size_t first_depth, std::size_t depth, std::size_t width,
                             Word* HWY_RESTRICT to, Smallest& smallest) {
  const hn::ScalableTag<Word> d;
  constexpr std::size_t kLanes = HWY_LANES(Word), kEight = 8;
  constexpr auto kBlock = static_cast<std::size_t>(kSumBlock);
  HWY_ALIGN std::uint16_t staged[kLanes * (kBlock + kLanes)];
  HWY_ALIGN static constexpr std::uint16_t kZeros[kBlock] = {};
  const std::uint16_t* rows[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    const bool inside = i < width && side + i < last;
    rows[i] = inside ? BfloatRow(from, side + i, first_depth, depth, staged + i * (kBlock + kLanes)) : kZeros;
  }
  // The next sides, which are too far apart for the hardware to prefetch them. Every kEight terms of bf16
  // take four lines; of wider formats this is the first part.
  const std::uint8_t* ahead = from.At(side + kLanes, first_depth);
  const auto prefetch = [&](std::size_t step) {
    for (std::size_t i = 0; i < 4; ++i)
      hwy::Prefetch(ahead + (step % 4 * 4 + i) * from.run_bytes + step / 4 * 64);
  };
  std::size_t k = 0;
  const auto put = [&](const hn::Vec<decltype(d)>(&terms)[4], std::size_t groups) HWY_ATTR {
    for (std::size_t g = 0; g < groups; ++g, to += 2 * kPanel) {
      smallest.See(terms[2 * g]);
      smallest.See(terms[2 * g + 1]);
      const Group group(terms[2 * g], terms[2 * g + 1]);
      StorePairs(group.even, width, to);
      StorePairs(group.odd, width, to + kPanel);
    }
  };
  hn::Vec<decltype(d)> terms[4];
  for (; k + kEight <= depth; k += kEight) {
    prefetch(k / kEight);
    TransposePieces(
        d, [&](std::size_t i) { return reinterpret_cast<const Word*>(rows[i] + k); }, 0,
        [&](std::size_t i, hn::Vec<decltype(d)> v) HWY_ATTR { terms[i] = v; });
    put(terms, 2);
  }
  if (k == depth) return;
  HWY_ALIGN std::uint16_t rest[kLanes * kEight] = {};
  for (std::size_t i = 0; i < kLanes; ++i) std::copy_n(rows[i] + k, depth - k, rest + i * kEight);
  TransposePieces(
      d, [&](std::size_t i) { return reinterpret_cast<const Word*>(rest + i * kEight); }, 0,
      [&](std::size_t i, hn::Vec<decltype(d)> v) HWY_ATTR { terms[i] = v; });
  put(terms, groups_of(depth - k));
}

/// Packs sides [first, first + sides), sides ≤ kMostSides, of a source whose sides are contiguous into panels
/// that are `stride` words apart.
template <std::size_t kPanel>
HWY_NOINLINE void PackAlong(const PackSource& from, std::size_t first, std::size_t sides,
                            std::size_t first_depth, std::size_t depth, Word* HWY_RESTRICT to,
                            std::size_t stride, Smallest* smallest) {
  const hn::ScalableTag<Word> d;
  constexpr std::size_t kLanes = HWY_LANES(Word), kWhole = (kPanel + kLanes - 1) / kLanes * kLanes;
  const hn::Rebind<std::uint16_t, decltype(d)> half;
  HWY_ALIGN std::uint16_t staged[kGroup][kMostSides + kLanes];
  HWY_ALIGN std::uint16_t last[kGroup][kWhole];  // the rows of a panel that is not whole
  HWY_ALIGN static constexpr std::uint16_t kZeros[kMostSides + kLanes] = {};
  const std::size_t bytes = from.Bytes(sides);
  for (std::size_t k = 0; k < depth; k += kGroup, to += 2 * kPanel) {
    const std::uint16_t* rows[kGroup];
    for (std::size_t i = k + kRowsAhead; i < std::min(depth, k + kRowsAhead + kGroup); ++i) {
      const std::uint8_t* ahead = from.At(first_depth + i, first);
      for (std::size_t line = 0; line < bytes; line += 64) hwy::Prefetch(ahead + line);
    }
    for (std::size_t i = 0; i < kGroup; ++i)
      rows[i] = k + i < depth ? BfloatRow(from, first_depth + k + i, first, sides, staged[i]) : kZeros;
    for (std::size_t side = 0, p = 0; side < sides; side += kPanel, ++p) {
      if (side + kWhole > sides) {
        for (std::size_t i = 0; i < kGroup; ++i) {
          std::fill_n(last[i], kWhole, std::uint16_t{0});
          std::copy_n(rows[i] + side, std::min(kPanel, sides - side), last[i]);
        }
      }
      for (std::size_t at = 0; at < kPanel; at += kLanes) {
        const auto term = [&](std::size_t i) HWY_ATTR {
          return hn::PromoteTo(d, hn::LoadU(half, (side + kWhole > sides ? last[i] : rows[i] + side) + at));
        };
        const std::size_t width = std::min(kLanes, kPanel - at);
        const auto even = FirstLanes(hn::Or(hn::ShiftLeft<16>(term(0)), term(2)), width);
        const auto odd = FirstLanes(hn::Or(hn::ShiftLeft<16>(term(1)), term(3)), width);
        smallest[p].See(even);
        smallest[p].See(odd);
        StorePairs(even, width, to + p * stride + at);
        StorePairs(odd, width, to + p * stride + kPanel + at);
      }
    }
  }
}

/// Packs sides [first, first + sides) and `depth` ≤ kSumBlock terms into ⌈sides / kPanel⌉ panels.
template <std::size_t kPanel>
void Pack(const PackSource& from, std::size_t first, std::size_t sides, std::size_t first_depth,
          std::size_t depth, std::uint16_t* to) {
  constexpr std::size_t kLanes = HWY_LANES(Word), kMostPanels = kMostSides / kPanel;
  const std::size_t stored = kPanel * packed_depth(depth);
  for (std::size_t done = 0; done < sides; done += kMostPanels * kPanel, to += kMostPanels * stored) {
    const std::size_t some = std::min(kMostPanels * kPanel, sides - done);
    const std::size_t panels = (some + kPanel - 1) / kPanel;
    Smallest smallest[kMostPanels];
    auto* words = reinterpret_cast<Word*>(to + kPanel * kHead);
    if (from.depth_contiguous) {
      for (std::size_t p = 0; p < panels; ++p) {
        for (std::size_t at = 0; at < kPanel; at += kLanes) {
          PackAcross<kPanel>(from, first + done + p * kPanel + at, first + sides, first_depth, depth,
                             std::min(kLanes, kPanel - at), words + p * stored / 2 + at, smallest[p]);
        }
      }
    } else {
      PackAlong<kPanel>(from, first + done, some, first_depth, depth, words, stored / 2, smallest);
    }
    for (std::size_t p = 0; p < panels; ++p) smallest[p].StoreExponent(to + p * stored);
  }
}

/// sums[i][j] += the products of the pairs of kRows rows and two vectors of columns.
template <std::size_t kRows>
__attribute__((target("avx512bf16"), always_inline)) inline void AddPairs(__m512 (&sums)[kRows][2],
                                                                          const Word* HWY_RESTRICT a,
                                                                          const Word* HWY_RESTRICT b) {
  const __m512i left = _mm512_loadu_si512(b), right = _mm512_loadu_si512(b + 16);
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kRows; ++i) {
    const __m512i pair = _mm512_set1_epi32(static_cast<int>(a[i]));
    sums[i][0] = _mm512_dpbf16_ps(sums[i][0], (__m512bh)pair, (__m512bh)left);
    sums[i][1] = _mm512_dpbf16_ps(sums[i][1], (__m512bh)pair, (__m512bh)right);
  }
}

/// C[kRows, kNr] from the words of kRows rows of a panel of A and of a panel of B, as TileMicrokernelRows.
template <std::size_t kRows>
__attribute__((target("avx512bf16"), noinline)) void PairRows(std::size_t depth, const Word* HWY_RESTRICT a,
                                                              const Word* HWY_RESTRICT b,
                                                              float* HWY_RESTRICT c, std::size_t ldc,
                                                              TileStore store, const void* const* ahead) {
  for (std::size_t left = groups_of(depth); left > 0; store = TileStore::add) {
    PrefetchBlock(ahead);
    __m512 even[kRows][2], odd[kRows][2];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kRows; ++i)
      even[i][0] = even[i][1] = odd[i][0] = odd[i][1] = _mm512_setzero_ps();
    const std::size_t groups = std::min(left, kTileBlock / kGroup);
    for (std::size_t g = 0; g < groups; ++g, a += 2 * kMr, b += 2 * kNr<float>) {
      AddPairs<kRows>(even, a, b);
      AddPairs<kRows>(odd, a + kMr, b + kNr<float>);
    }
    left -= groups;
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (std::size_t j = 0; j < 2; ++j) {
        float* to = c + i * ldc + 16 * j;
        const __m512 before = store == TileStore::add ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
        _mm512_storeu_ps(to, _mm512_add_ps(before, _mm512_add_ps(even[i][j], odd[i][j])));
      }
    }
  }
}

/// The same by fused multiply-adds, for factors that PairRows would take as zero.
template <std::size_t kRows>
HWY_NOINLINE void SlowPairRows(std::size_t depth, const Word* HWY_RESTRICT a, const Word* HWY_RESTRICT b,
                               float* HWY_RESTRICT c, std::size_t ldc, TileStore store,
                               const void* const* /*ahead*/) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<Word> du;
  const auto first = [&](hn::Vec<decltype(du)> pair)
                         HWY_ATTR { return hn::BitCast(d, hn::And(pair, hn::Set(du, 0xffff0000))); };
  const auto second = [&](hn::Vec<decltype(du)> pair)
                          HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<16>(pair)); };
  for (std::size_t k = 0; k < depth; k += kTileBlock, store = TileStore::add) {
    const std::size_t words = 2 * groups_of(std::min(kTileBlock, depth - k));
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kNr<float>; j += HWY_LANES(float)) {
        hn::Vec<decltype(d)> sums[2] = {hn::Zero(d), hn::Zero(d)};
        for (std::size_t p = 0; p < words; ++p) {
          const auto left = hn::Set(du, a[p * kMr + i]), right = hn::LoadU(du, b + p * kNr<float> + j);
          auto& sum = sums[p % 2];
          sum = hn::MulAdd(first(left), first(right), sum);
          sum = hn::MulAdd(second(left), second(right), sum);
        }
        float* to = c + i * ldc + j;
        const auto before = store == TileStore::add ? hn::LoadU(d, to) : hn::Zero(d);
        hn::StoreU(hn::Add(before, hn::Add(sums[0], sums[1])), d, to);
      }
    }
    a += words * kMr;
    b += words * kNr<float>;
  }
}

template <bool kFast, std::size_t... kRow>
constexpr auto PairRowsTable(std::index_sequence<kRow...>) {
  return std::array{kFast ? &PairRows<kRow + 1> : &SlowPairRows<kRow + 1>...};
}

/// C[m, n] (ldc) from a panel of A and a panel of B, as TileMicrokernel.
inline void Multiply(std::size_t depth, const std::uint16_t* a, const std::uint16_t* b, float* c,
                     std::size_t ldc, std::size_t m, std::size_t n, TileStore store,
                     const LinesAhead* ahead) {
  static constexpr auto kFast = PairRowsTable<true>(std::make_index_sequence<kTileRows>()),
                        kSlow = PairRowsTable<false>(std::make_index_sequence<kTileRows>());
  const bool fast = NeverSubnormal(ExponentAt(a), ExponentAt(b));
  GuardTask::add(fast);
  const auto* left = reinterpret_cast<const Word*>(a + kMr * kHead);
  const auto* right = reinterpret_cast<const Word*>(b + kNr<float> * kHead);
  InTiles(c, ldc, m, n, store, ahead,
          [&](std::size_t row, std::size_t rows, float* to, std::size_t ld, const void* const* lines)
              HWY_ATTR { (fast ? kFast : kSlow)[rows - 1](depth, left + row, right, to, ld, store, lines); });
}

}  // namespace pairs
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3

#endif  // MANTISSA_KERNELS_CPU_GEMM_PAIRS_INL_H_
