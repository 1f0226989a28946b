// Products of bf16 factors in tile order by the tile instruction TDPBF16PS, of AMX or of its model: a 32 × 32
// part of C in four tile registers.
//
// The instruction adds a block of 32 terms to C, and takes subnormal numbers as zero. It is used where none
// can occur: the smallest exponents of the two panels exclude it for the sums of a block
// (cpu/gemm_bf16-inl.h), which are multiples of 2^−126. So are all sums with C, if every C from before is
// zero or at least 2^−103, and thus a multiple of 2^−126 too. Other blocks are multiplied by fused
// multiply-adds.
#if defined(MANTISSA_KERNELS_CPU_GEMM_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_TILES_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_TILES_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_TILES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/kernels/cpu/gemm_tiles_pack-inl.h"
#include "mantissa/kernels/cpu/microkernel-inl.h"
#include "mantissa/kernels/cpu/tile_panels-inl.h"
#include "mantissa/kernels/guard_count.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace tiles {
namespace hn = hwy::HWY_NAMESPACE;

/// A part of C, 32 columns wide.
struct Sums {
  float* data;
  std::size_t ld, rows;
  TileStore store;
  const float* row(std::size_t i) const { return data + i * ld; }
};

/// The tiles of a packed panel of B.
inline TilePlaces PackedB(const Word* words) {
  constexpr std::size_t kWord = sizeof(Word);
  return {reinterpret_cast<const std::uint8_t*>(words), kEdge * kWord, kTileWords * kWord,
          kBlockWords * kWord};
}

/// Adds blocks of 32 terms to 32 rows of C, or to 16 of them: the first tiles of A's panel. From +0 on for
/// TileStore::set.
template <class Tiles, bool kBoth>
HWY_NOINLINE void MultiplyBlocks(std::size_t blocks, const TilePlaces& a, const Word* b, const Sums& c) {
  AddBlocks<Tiles, kBoth, true>(blocks, a, PackedB(b), c.data, c.ld, c.store == TileStore::set);
}

/// The same by fused multiply-adds, for the rows of C.
HWY_NOINLINE inline void MultiplySlowly(std::size_t blocks, const TilePlaces& a, const Word* b,
                                        const Sums& c) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < c.rows; ++i) {
    for (std::size_t j = 0; j < kSides; j += HWY_LANES(float)) {
      float* to = c.data + i * c.ld + j;
      const auto before = c.store == TileStore::add ? hn::LoadU(d, to) : hn::Zero(d);
      hn::StoreU(SlowSums(blocks, a, i, PackedB(b), j, before, EveryTerm()), d, to);
    }
  }
}

/// Returns true if every sum is zero or at least 2^−103.
inline bool AreMultiples(const Sums& c) {
  const hn::ScalableTag<Word> d;
  constexpr Word kLeast = (127U - 103) << 23U;
  auto least = hn::Set(d, ~Word{0});
  for (std::size_t i = 0; i < c.rows; ++i) {
    for (std::size_t j = 0; j < kSides; j += HWY_LANES(Word)) {
      const auto bits = hn::LoadU(d, reinterpret_cast<const Word*>(c.row(i)) + j);
      // Without its sign, twice the magnitude; zero becomes the largest number.
      least = hn::Min(least, hn::Sub(hn::Add(bits, bits), hn::Set(d, 1)));
    }
  }
  const auto limit = hn::Set(d, 2 * kLeast - 1);
  return hn::AllTrue(d, hn::Eq(hn::Min(least, limit), limit));
}

template <class Tiles>
void MultiplyFast(std::size_t blocks, const TilePlaces& a, const Word* b, const Sums& c) {
  (c.rows > kEdge ? &MultiplyBlocks<Tiles, true> : &MultiplyBlocks<Tiles, false>)(blocks, a, b, c);
}

/// C[m, n] (ldc) from a panel of A and a panel of B in tile order, m, n ≤ 32, by the tiles of `Tiles`. Writes
/// only C's m × n elements. Prefetches `ahead` unless it is null.
template <class Tiles>
void Multiply(std::size_t depth, const std::uint16_t* a, const std::uint16_t* b, float* c, std::size_t ldc,
              std::size_t m, std::size_t n, TileStore store, const LinesAhead* ahead) {
  if (ahead != nullptr) {
    for (const void* line : *ahead) hwy::Prefetch(static_cast<const std::uint8_t*>(line));
  }
  HWY_ALIGN float edge[kSides * kSides];
  const bool whole = n == kSides && m % kEdge == 0;
  if (!whole && store == TileStore::add) {
    std::fill_n(edge, kSides * kSides, 0.0F);
    for (std::size_t i = 0; i < m; ++i) std::copy_n(c + i * ldc, n, edge + i * kSides);
  }
  const Sums sums = {whole ? c : edge, whole ? ldc : kSides, m, store};
  const bool fast = bf16::NeverSubnormal(bf16::ExponentAt(a), bf16::ExponentAt(b)) &&
                    (store == TileStore::set || AreMultiples(sums));
  GuardTask::add(fast);
  const auto multiply = fast ? &MultiplyFast<Tiles> : &MultiplySlowly;
  multiply(blocks_of(depth), tiles_of_panel(a), reinterpret_cast<const Word*>(b) + kHeadWords, sums);
  if (whole) return;
  for (std::size_t i = 0; i < m; ++i) std::copy_n(edge + i * kSides, n, c + i * ldc);
}

}  // namespace tiles
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_TILES_INL_H_
