// The inner product of the matrix kernels: a tile of C held in registers, fed from packed panels.
//
// A is packed into panels of kMr rows, each [depth][kMr]; B into panels of kNr columns, each [depth][kNr]
// (kernels/cpu/gemm/pack-inl.h). Every element of C is one chain of fused multiply-adds from zero in
// ascending depth in every tile, so the bits do not depend on m, n or the instruction set.
#if defined(MANTISSA_KERNELS_CPU_MICROKERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_MICROKERNEL_INL_H_
#undef MANTISSA_KERNELS_CPU_MICROKERNEL_INL_H_
#else
#define MANTISSA_KERNELS_CPU_MICROKERNEL_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "mantissa/core/tensor/extent.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Columns of a tile: two vectors.
template <class T>
inline constexpr std::size_t kNr = 2 * HWY_LANES(T);

// Rows of a tile, with two accumulators each. Of 16 registers (AVX2) 12 are accumulators, of 32 (AVX-512,
// NEON) 28. Two hold the columns of B and one, if the instruction set needs it, the broadcast element of A.
#if HWY_TARGET == HWY_AVX2
inline constexpr std::size_t kMr = 6;
#else
inline constexpr std::size_t kMr = 14;
#endif

/// The destination of a chain: C = chain, or C = C + chain.
enum class TileStore { set, add };

/// Cache lines that a tile prefetches while it multiplies, from which the next block is packed.
inline constexpr std::size_t kLinesAhead = 32;
/// Terms of the sum between two prefetches: a whole block prefetches all lines.
inline constexpr std::size_t kDepthPerLine = static_cast<std::size_t>(kSumBlock) / kLinesAhead;
using LinesAhead = std::array<const void*, kLinesAhead>;
/// Terms of the panel of B that are prefetched before they are multiplied: the panel streams through the
/// first-level cache.
inline constexpr std::size_t kTermsAhead = 8;
/// Adjacent cache lines that a tile prefetches into the second-level cache between two of `LinesAhead`, of
/// the panel of A that follows.
inline constexpr std::size_t kPanelLines = 2, kLineBytes = 64;
/// The bytes of them that a whole block prefetches.
inline constexpr std::size_t kPanelBytes = kLinesAhead * kPanelLines * kLineBytes;

/// What a tile prefetches while it multiplies. It need not be readable.
struct TileAhead {
  const LinesAhead* lines = nullptr;  // null: none
  const std::uint8_t* panel;          // kPanelBytes
};

/// C[kRows, n] from the first kRows rows of a panel of A and the first n ≤ kNr columns of a panel of B.
template <std::size_t kRows, class T>
HWY_NOINLINE void MicrokernelRows(std::size_t depth, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b,
                                  T* HWY_RESTRICT c, std::size_t ldc, std::size_t n, TileStore store,
                                  const TileAhead& ahead) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = HWY_LANES(T);
  using V = hn::Vec<decltype(d)>;
  V left[kRows], right[kRows];
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kRows; ++i) left[i] = right[i] = hn::Zero(d);
  const auto multiply = [&]() HWY_ATTR {
    const V b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + kLanes);
    HWY_UNROLL(2)
    for (std::size_t at = 0; at < kNr<T> * sizeof(T); at += kLineBytes)
      hwy::Prefetch(reinterpret_cast<const std::uint8_t*>(b + kTermsAhead * kNr<T>) + at);
    HWY_UNROLL(16)
    for (std::size_t i = 0; i < kRows; ++i) {
      const V element = hn::Set(d, a[i]);
      left[i] = hn::MulAdd(element, b0, left[i]);
      right[i] = hn::MulAdd(element, b1, right[i]);
    }
    a += kMr;
    b += kNr<T>;
  };
  std::size_t k = 0;
  const std::uint8_t* panel = ahead.panel;
  const void* const* line = ahead.lines != nullptr ? ahead.lines->data() : nullptr;
  for (; k + kDepthPerLine <= depth; k += kDepthPerLine) {
    if (line != nullptr) hwy::Prefetch(static_cast<const std::uint8_t*>(*line++));
    for (std::size_t i = 0; i < kPanelLines; ++i, panel += kLineBytes) __builtin_prefetch(panel, 0, 2);
    for (std::size_t i = 0; i < kDepthPerLine; ++i) multiply();
  }
  for (; k < depth; ++k) multiply();
  if (n == kNr<T>) {
    HWY_UNROLL(16)
    for (std::size_t i = 0; i < kRows; ++i, c += ldc) {
      if (store == TileStore::add) {
        left[i] = hn::Add(hn::LoadU(d, c), left[i]);
        right[i] = hn::Add(hn::LoadU(d, c + kLanes), right[i]);
      }
      hn::StoreU(left[i], d, c);
      hn::StoreU(right[i], d, c + kLanes);
    }
    return;
  }
  HWY_ALIGN T tile[kRows * kNr<T>];
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kRows; ++i) {
    hn::Store(left[i], d, tile + i * kNr<T>);
    hn::Store(right[i], d, tile + i * kNr<T> + kLanes);
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      T& to = c[i * ldc + j];
      to = store == TileStore::add ? to + tile[i * kNr<T> + j] : tile[i * kNr<T> + j];
    }
  }
}

template <class T, std::size_t... kRow>
constexpr auto MicrokernelTable(std::index_sequence<kRow...>) {
  return std::array{&MicrokernelRows<kRow + 1, T>...};
}

/// C[m, n] (ldc) from a panel of A and a panel of B, m ≤ kMr, n ≤ kNr. Writes only C's m × n elements.
template <class T>
HWY_INLINE void Microkernel(std::size_t depth, const T* a, const T* b, T* c, std::size_t ldc, std::size_t m,
                            std::size_t n, TileStore store, const TileAhead& ahead) {
  static constexpr auto kTable = MicrokernelTable<T>(std::make_index_sequence<kMr>());
  kTable[m - 1](depth, a, b, c, ldc, n, store, ahead);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_MICROKERNEL_INL_H_
