// The inner product in tile order (SumOrder::tile) by fused multiply-adds, on the panels of
// kernels/cpu/gemm/microkernel-inl.h.
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

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/cpu/gemm/microkernel-inl.h"
#include "mantissa/kernels/cpu/inline_across_targets.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Rows summed at once: a row needs the registers of two chains for each vector of columns.
inline constexpr std::size_t kTileRows = kMr / 2;

/// Lines that a block prefetches: all blocks of a panel and of both parts of its rows prefetch all lines.
inline constexpr std::size_t kLinesPerBlock =
    kLinesAhead * kTileBlock / static_cast<std::size_t>(kSumBlock) / (kMr / kTileRows);

/// Prefetches the lines of one block and advances `ahead` to those of the next one, unless it is null.
MANTISSA_INLINE_ACROSS_TARGETS void PrefetchBlock(const void* const*& ahead) {
  if (ahead == nullptr) return;
  for (std::size_t i = 0; i < kLinesPerBlock; ++i) hwy::Prefetch(static_cast<const std::uint8_t*>(*ahead++));
}

/// C[kRows, kNr] from `depth` terms of rows of a panel of A and of a panel of B: the sums of the blocks are
/// added to C one after the other, from +0 on for TileStore::set.
template <std::size_t kRows>
HWY_NOINLINE void TileMicrokernelRows(std::size_t depth, const float* HWY_RESTRICT a,
                                      const float* HWY_RESTRICT b, float* HWY_RESTRICT c, std::size_t ldc,
                                      TileStore store, const void* const* ahead) {
  const hn::ScalableTag<float> d;
  constexpr std::size_t kLanes = HWY_LANES(float);
  using V = hn::Vec<decltype(d)>;
  for (std::size_t left = depth; left > 0; store = TileStore::add) {
    PrefetchBlock(ahead);
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
    const std::size_t terms = std::min(left, kTileBlock);
    for (std::size_t k = 0; k + 2 <= terms; k += 2) {
      multiply(even);
      multiply(odd);
    }
    if (terms % 2 == 1) multiply(even);
    left -= terms;
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < kRows; ++i) {
      HWY_UNROLL(2)
      for (std::size_t j = 0; j < 2; ++j) {
        float* to = c + i * ldc + j * kLanes;
        const V before = store == TileStore::add ? hn::LoadU(d, to) : hn::Zero(d);
        hn::StoreU(hn::Add(before, hn::Add(even[i][j], odd[i][j])), d, to);
      }
    }
  }
}

template <std::size_t... kRow>
constexpr auto TileMicrokernelTable(std::index_sequence<kRow...>) {
  return std::array{&TileMicrokernelRows<kRow + 1>...};
}

/// Calls add(row, rows, c, ldc, lines) for rows [row, row + rows) of a tile, rows ≤ kTileRows. It must write
/// whole rows of kNr columns of c. m ≤ kMr, n ≤ kNr; only C's m × n elements are written. `lines` are those
/// of `ahead` that it should prefetch, or null.
template <class Add>
HWY_INLINE void InTiles(float* c, std::size_t ldc, std::size_t m, std::size_t n, TileStore store,
                        const LinesAhead* ahead, const Add& add) {
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
  for (std::size_t i = 0; i < m; i += kTileRows) {
    const void* const* lines = ahead == nullptr ? nullptr : ahead->data() + i * kLinesAhead / kMr;
    add(i, std::min(m - i, kTileRows), to + i * ld, ld, lines);
  }
  if (whole) return;
  for (std::size_t i = 0; i < m; ++i) std::copy_n(tile + i * ld, n, c + i * ldc);
}

/// C[m, n] (ldc) from a panel of A and a panel of B in tile order, m ≤ kMr, n ≤ kNr: the blocks of `depth`
/// terms are added to C one after the other, from +0 on for TileStore::set. Otherwise as Microkernel.
inline void TileMicrokernel(std::size_t depth, const float* a, const float* b, float* c, std::size_t ldc,
                            std::size_t m, std::size_t n, TileStore store, const LinesAhead* ahead) {
  static constexpr auto kTable = TileMicrokernelTable(std::make_index_sequence<kTileRows>());
  InTiles(c, ldc, m, n, store, ahead,
          [&](std::size_t row, std::size_t rows, float* to, std::size_t ld, const void* const* lines)
              HWY_ATTR { kTable[rows - 1](depth, a + row, b, to, ld, store, lines); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_MICROKERNEL_TILE_INL_H_
