// Packs operands of a matrix product into panels, with conversion from their storage format and rounding to
// their operand format (kernels/cpu/gemm/source-inl.h).
#if defined(MANTISSA_KERNELS_CPU_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_PACK_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_PACK_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_PACK_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/cpu/gemm/source-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Loads the 128-bit pieces at row(i), row(i + step), row(i + 2 step) … into one vector, step = lanes of 128
/// bits.
template <class D, class RowAt>
HWY_INLINE hn::Vec<D> LoadPieces(D d, const RowAt& row, std::size_t i) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) == 16) {
    return hn::LoadU(d, row(i));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadPieces(half, row, i + hn::MaxLanes(half)), LoadPieces(half, row, i));
  }
}

/// Calls put(k, vector) with elements k, k + 1 … of every row, one vector each, for as many as 128 bits hold.
/// row(i) points to element k of row i.
template <class D, class RowAt, class Put>
HWY_INLINE void TransposePieces(D d, const RowAt& row, std::size_t k, const Put& put) {
  const auto r0 = LoadPieces(d, row, 0), r1 = LoadPieces(d, row, 1);
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    put(k, hn::InterleaveLower(d, r0, r1));
    put(k + 1, hn::InterleaveUpper(d, r0, r1));
  } else {
    const auto r2 = LoadPieces(d, row, 2), r3 = LoadPieces(d, row, 3);
    const auto low02 = hn::InterleaveLower(d, r0, r2), low13 = hn::InterleaveLower(d, r1, r3);
    const auto high02 = hn::InterleaveUpper(d, r0, r2), high13 = hn::InterleaveUpper(d, r1, r3);
    put(k, hn::InterleaveLower(d, low02, low13));
    put(k + 1, hn::InterleaveUpper(d, low02, low13));
    put(k + 2, hn::InterleaveLower(d, high02, high13));
    put(k + 3, hn::InterleaveUpper(d, high02, high13));
  }
}

/// Packs one vector's worth of a panel's sides, [side, side + min(lanes, kPanel − at)), at index `at` of the
/// panel, for depth ≤ kSumBlock. Sides from `last` on are zero.
template <std::size_t kPanel, class T>
HWY_NOINLINE void PackTransposed(const PackSource& from, std::size_t side, std::size_t last,
                                 std::size_t first_depth, std::size_t depth, std::size_t at,
                                 T* HWY_RESTRICT panel) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = HWY_LANES(T), kStep = 16 / sizeof(T);
  constexpr auto kBlock = static_cast<std::size_t>(kSumBlock);
  HWY_ALIGN T staged[kLanes * kBlock];
  HWY_ALIGN static constexpr T kZeros[kBlock] = {};
  const T* rows[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    const bool inside = side + i < last && at + i < kPanel;
    rows[i] = inside ? OperandRow<T>(from, side + i, first_depth, depth, staged + i * kBlock) : kZeros;
  }
  const std::size_t width = std::min(kLanes, kPanel - at);
  T* to = panel + at;
  std::size_t k = 0;
  // A vector wider than the rest of the panel overlaps the next depth, which is written after it. The last
  // depth is written element by element.
  const std::size_t end = width == kLanes ? depth : depth - std::min<std::size_t>(depth, 1);
  const auto put = [&](std::size_t j, hn::Vec<decltype(d)> v) HWY_ATTR { hn::StoreU(v, d, to + j * kPanel); };
  for (; k + kStep <= end; k += kStep)
    TransposePieces(
        d, [&](std::size_t i) { return rows[i] + k; }, k, put);
  for (; k < depth; ++k) {
    for (std::size_t i = 0; i < width; ++i) to[k * kPanel + i] = rows[i][k];
  }
}

/// Rows to prefetch ahead; rows are too far apart for the hardware to prefetch them.
inline constexpr std::size_t kRowsAhead = 8;

/// Spreads one row of `sides` over panels that are `stride` apart and fills the last one with zeros. A vector
/// wider than a panel overlaps the panel's next depth, which is written after it, unless this is the `last`
/// one.
template <std::size_t kPanel, class T>
HWY_INLINE void SpreadRow(const T* HWY_RESTRICT row, std::size_t sides, bool last, T* HWY_RESTRICT to,
                          std::size_t stride) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = HWY_LANES(T), kWhole = (kPanel + kLanes - 1) / kLanes * kLanes;
  std::size_t i = 0;
  if (kWhole == kPanel || !last) {
    for (; i + kWhole <= sides; i += kPanel, to += stride) {
      for (std::size_t v = 0; v < kWhole; v += kLanes) hn::StoreU(hn::LoadU(d, row + i + v), d, to + v);
    }
  }
  for (; i < sides; i += kPanel, to += stride) {
    const std::size_t count = std::min(kPanel, sides - i);
    std::copy_n(row + i, count, to);
    std::fill(to + count, to + kPanel, T{0});
  }
}

/// Packs sides [first, first + sides) of rows in which the sides are contiguous. It fills few panels at a
/// time: their lines share cache sets and must stay cached.
template <std::size_t kPanel, class T>
HWY_NOINLINE void PackStraight(const PackSource& from, std::size_t first, std::size_t sides,
                               std::size_t first_depth, std::size_t depth, T* HWY_RESTRICT to) {
  constexpr std::size_t kPart = (kPanel % HWY_LANES(T) == 0 ? 4 : 8) * kPanel;
  HWY_ALIGN T staged[kPart];
  for (std::size_t part = 0; part < sides; part += kPart) {
    const std::size_t count = std::min(kPart, sides - part), bytes = from.Bytes(count);
    for (std::size_t k = 0; k < depth; ++k) {
      if (k + kRowsAhead < depth) {
        const std::uint8_t* ahead = from.At(first_depth + k + kRowsAhead, first + part);
        for (std::size_t i = 0; i < bytes; i += 64) hwy::Prefetch(ahead + i);
      }
      const T* row = OperandRow<T>(from, first_depth + k, first + part, count, staged);
      SpreadRow<kPanel>(row, count, k + 1 == depth, to + part * depth + k * kPanel, depth * kPanel);
    }
  }
}

/// Packs sides [first, first + sides) and depth ≤ kSumBlock terms from first_depth on into ⌈sides / kPanel⌉
/// panels of [depth][kPanel], padding the last one with zeros.
template <std::size_t kPanel, class T>
void PackPanels(const PackSource& from, std::size_t first, std::size_t sides, std::size_t first_depth,
                std::size_t depth, T* to) {
  if (!from.depth_contiguous) return PackStraight<kPanel>(from, first, sides, first_depth, depth, to);
  if constexpr (kPanel == 1) {
    for (std::size_t i = 0; i < sides; ++i, to += depth) {
      const T* row = OperandRow<T>(from, first + i, first_depth, depth, to);
      if (row != to) std::memcpy(to, row, depth * sizeof(T));
    }
    return;
  }
  // From the last vector of a panel to the first, so that writes beyond a vector's part are overwritten
  // later.
  constexpr std::size_t kVectors = (kPanel + HWY_LANES(T) - 1) / HWY_LANES(T);
  for (std::size_t i = 0; i < sides; i += kPanel) {
    for (std::size_t v = kVectors; v-- > 0;) {
      const std::size_t at = v * HWY_LANES(T);
      PackTransposed<kPanel>(from, first + i + at, first + sides, first_depth, depth, at, to + i * depth);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_PACK_INL_H_
