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

#include "mantissa/kernels/cpu/gemm/microkernel-inl.h"
#include "mantissa/kernels/cpu/gemm/tiles_pack-inl.h"
#include "mantissa/kernels/cpu/tiles/tile_panels-inl.h"
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

/// Prefetches the part of A from which the next strip is packed or read into the second-level cache, a few
/// lines per block of terms.
class StripAhead {
 public:
  StripAhead() = default;
  /// Rows of `bytes` bytes, `stride` apart. `blocks`: the number of calls of Step() before they are needed.
  StripAhead(const void* row, std::size_t rows, std::size_t bytes, std::size_t stride, std::size_t blocks)
      : row_(static_cast<const std::uint8_t*>(row)), rows_(rows), bytes_(bytes), stride_(stride) {
    const std::size_t lines = rows * ((bytes + kLine - 1) / kLine + 1);
    per_block_ = lines / std::max<std::size_t>(blocks, 1) + 1;
  }
  HWY_INLINE void Step() {
    for (std::size_t i = 0; i < per_block_ && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += kLine;
      if (at_ < bytes_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_;
    }
  }

 private:
  static constexpr std::size_t kLine = kTileRowBytes;
  const std::uint8_t* row_ = nullptr;  // the row that contains the next line
  std::size_t rows_ = 0, bytes_ = 0, stride_ = 0, at_ = 0, per_block_ = 0;
};

/// Packed panels of A and B over the same terms.
struct PanelPair {
  std::size_t depth;
  const std::uint16_t *a, *b;
};

/// As MultiplyPanels, by the tile instruction alone: no sum may be subnormal.
template <class Tiles, bool kTwoRows, class Panels>
HWY_NOINLINE void MultiplyPanelsFast(std::size_t begin, std::size_t end, const Panels& panels, const Sums& c,
                                     StripAhead& ahead) {
  TileSums<Tiles, kTwoRows, true> sums;
  c.store == TileStore::set ? sums.Zero() : sums.Load(c.data, c.ld);
  for (std::size_t i = begin; i < end; ++i) {
    const PanelPair p = panels(i);
    sums.template Add<true>(blocks_of(p.depth), tiles_of_panel(p.a),
                            PackedB(reinterpret_cast<const Word*>(p.b) + kHeadWords),
                            [&]() HWY_ATTR { ahead.Step(); });
  }
  sums.Store(c.data, c.ld);
}

/// C from panels(begin) to panels(end − 1), consecutive terms of one sum in tile order. C has whole panels:
/// 32 columns, and rows for all tiles of A. Returns true if no sum can be subnormal.
template <class Tiles, class Panels>
bool MultiplyPanels(std::size_t begin, std::size_t end, const Panels& panels, const Sums& c,
                    StripAhead& ahead) {
  bool fast = c.store == TileStore::set || AreMultiples(c);
  for (std::size_t i = begin; i < end && fast; ++i) {
    const PanelPair p = panels(i);
    fast = bf16::NeverSubnormal(bf16::ExponentAt(p.a), bf16::ExponentAt(p.b));
  }
  if (fast) {
    GuardTask::add(true, end - begin);
    c.rows > kEdge ? MultiplyPanelsFast<Tiles, true>(begin, end, panels, c, ahead)
                   : MultiplyPanelsFast<Tiles, false>(begin, end, panels, c, ahead);
    return true;
  }
  TileStore store = c.store;
  for (std::size_t i = begin; i < end; ++i, store = TileStore::add) {
    const PanelPair p = panels(i);
    Multiply<Tiles>(p.depth, p.a, p.b, c.data, c.ld, c.rows, kSides, store, nullptr);
  }
  return false;
}

}  // namespace tiles
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_TILES_INL_H_
