// The inner product in tile order (SumOrder::tile) by fused multiply-adds, on the panels of
// kernels/cpu/microkernel-inl.h.
#if defined(MANTISSA_KERNELS_CPU_MICROKERNEL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_MICROKERNEL_TILE_INL_H_
#undef MANTISSA_KERNELS_CPU_MICROKERNEL_TILE_INL_H_
#else
#define MANTISSA_KERNELS_CPU_MICROKERNEL_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "mantissa/kernels/cpu/microkernel-inl.h"
#include "mantissa/tensor/extent.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Rows summed at once: a row needs the registers of two chains for each vector of columns.
inline constexpr std::size_t kTileRows = kMr / 2;

/// C[kRows, kNr] += the block of `depth` ≤ kTileBlock terms, or = +0 + the block.
template <std::size_t kRows>
HWY_NOINLINE void TileBlock(std::size_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                            float* HWY_RESTRICT c, std::size_t ldc, TileStore store) {
  const hn::ScalableTag<float> d;
  constexpr std::size_t kLanes = HWY_LANES(float);
  using V = hn::Vec<decltype(d)>;
  V even[kRows][2], odd[kRows][2];
  HWY_UNROLL(8)
  for (std::size_t i = 0; i < kRows; ++i) even[i][0] = even[i][1] = odd[i][0] = odd[i][1] = hn::Zero(d);
  const auto multiply = [&](V(&sum)[kRows][2]) HWY_ATTR {
    const V b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + kLanes);
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < kRows; ++i) {
      const V element = hn::Set(d, a[i]);
      sum[i][0] = hn::MulAdd(element, b0, sum[i][0]);
      sum[i][1] = hn::MulAdd(element, b1, sum[i][1]);
    }
    a += kMr;
    b += kNr<float>;
  };
  for (std::size_t k = 0; k + 2 <= depth; k += 2) {
    multiply(even);
    multiply(odd);
  }
  if (depth % 2 == 1) multiply(even);
  HWY_UNROLL(8)
  for (std::size_t i = 0; i < kRows; ++i, c += ldc) {
    HWY_UNROLL(2)
    for (std::size_t j = 0; j < 2; ++j) {
      float* to = c + j * kLanes;
      const V before = store == TileStore::add ? hn::LoadU(d, to) : hn::Zero(d);
      hn::StoreU(hn::Add(before, hn::Add(even[i][j], odd[i][j])), d, to);
    }
  }
}

template <std::size_t... kRow>
constexpr auto TileBlockTable(std::index_sequence<kRow...>) {
  return std::array{&TileBlock<kRow + 1>...};
}

/// Calls add(k, terms, row, rows, c, ldc, store) for each block of `terms` ≤ kTileBlock terms from k on, and
/// in it for rows [row, row + rows), rows ≤ kTileRows. It must add the block to whole rows of kNr columns of
/// c, or to +0. m ≤ kMr, n ≤ kNr; only C's m × n elements are written. Prefetches `ahead` unless it is null.
template <class AddBlock>
HWY_INLINE void InTiles(std::size_t depth, float* c, std::size_t ldc, std::size_t m, std::size_t n,
                        TileStore store, const LinesAhead* ahead, const AddBlock& add) {
  constexpr std::size_t kLines = kLinesAhead * kTileBlock / static_cast<std::size_t>(kSumBlock);
  HWY_ALIGN float tile[kMr * kNr<float>];
  const bool whole = n == kNr<float>;
  float* to = whole ? c : tile;
  const std::size_t ld = whole ? ldc : kNr<float>;
  if (!whole && store == TileStore::add) {
    for (std::size_t i = 0; i < m; ++i) {
      std::copy_n(c + i * ldc, n, tile + i * ld);
      std::fill(tile + i * ld + n, tile + (i + 1) * ld, 0.0F);
    }
  }
  for (std::size_t k = 0; k < depth; k += kTileBlock) {
    if (ahead != nullptr) {
      const void* const* line = ahead->data() + k / kTileBlock * kLines;
      for (std::size_t i = 0; i < kLines; ++i) hwy::Prefetch(static_cast<const std::uint8_t*>(line[i]));
    }
    const std::size_t terms = std::min(kTileBlock, depth - k);
    for (std::size_t i = 0; i < m; i += kTileRows)
      add(k, terms, i, std::min(m - i, kTileRows), to + i * ld, ld, k == 0 ? store : TileStore::add);
  }
  if (whole) return;
  for (std::size_t i = 0; i < m; ++i) std::copy_n(tile + i * ld, n, c + i * ldc);
}

/// C[m, n] (ldc) from a panel of A and a panel of B in tile order, m ≤ kMr, n ≤ kNr: the blocks of `depth`
/// terms are added to C one after the other, from +0 on for TileStore::set. Otherwise as Microkernel.
inline void TileMicrokernel(std::size_t depth, const float* a, const float* b, float* c, std::size_t ldc,
                            std::size_t m, std::size_t n, TileStore store, const LinesAhead* ahead) {
  static constexpr auto kTable = TileBlockTable(std::make_index_sequence<kTileRows>());
  InTiles(depth, c, ldc, m, n, store, ahead,
          [&](std::size_t k, std::size_t terms, std::size_t row, std::size_t rows, float* to, std::size_t ld,
              TileStore how)
              HWY_ATTR { kTable[rows - 1](terms, a + k * kMr + row, b + k * kNr<float>, to, ld, how); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_MICROKERNEL_TILE_INL_H_
