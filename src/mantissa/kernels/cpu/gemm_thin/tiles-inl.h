// Products of few rows with a matrix whose columns are contiguous along the depth, by the tile instruction
// (cpu/gemm_tiles-inl.h), transposed: Cᵀ = Bᵀ · Aᵀ.
//
// A tile of the left factor holds 16 columns of B, each 32 neighbouring terms, which is how they lie in the
// source. So B is loaded into tiles from its place and never packed. A is small: it is packed once, as the
// right factor, and shared.
//
// The guard must know the smallest exponent of B's factors, but scanning B before multiplying it would read
// it twice. Instead the tiles multiply at once, and the lines that they loaded are scanned while they are in
// the first-level cache, beside the multiplications. At the end of a segment of several blocks the exponents
// decide whether its sums are kept, or computed again from those before it by fused multiply-adds.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_TILES_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_TILES_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/kernels/cpu/gemm/pack-inl.h"
#include "mantissa/kernels/cpu/gemm/tiles-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/thin-inl.h"
#include "mantissa/kernels/guard_count.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace tiles {
namespace hn = hwy::HWY_NAMESPACE;

/// Prefetches go to the second-level cache: the first-level cache allows too few outstanding misses to keep
/// the memory busy (Highway's Prefetch supports only the first level).
inline constexpr int kThinLevel = 2;

/// The sums of 32 columns of C and a strip of up to 32 rows, transposed: [column][row]. From +0 on. They stay
/// in tiles as long as these may add to them. A packed panel of A is one of the right factor.
template <class Tiles>
class ThinSums {
 public:
  /// Rows up to 16 take one tile of the right factor instead of two.
  explicit ThinSums(std::size_t rows) : both_(rows > kEdge) {
    tiles_.template zero<0>();
    tiles_.template zero<1>();
    tiles_.template zero<2>();
    tiles_.template zero<3>();
  }

  /// Adds the products of a segment: blocks of the columns, whose tiles lie at `columns`, and the strip's
  /// panel `a`. Prefetches as many bytes from `ahead` on as it reads of the columns, unless it is null.
  void Add(std::size_t blocks, const TilePlaces& columns, const std::uint16_t* a, const std::uint8_t* ahead) {
    const std::uint32_t of_a = bf16::ExponentAt(a);
    // Factors of B must have at least this exponent: 1 for a normal number.
    const std::uint32_t least = bf16::kLeastExponents - std::min(of_a, bf16::kLeastExponents - 1);
    const Word* right = reinterpret_cast<const Word*>(a) + kHeadWords;
    bool fast = of_a > 0 && Load();
    if (fast) {
      fast = both_ ? AddBlocks<true>(blocks, columns, right, least, ahead)
                   : AddBlocks<false>(blocks, columns, right, least, ahead);
    }
    GuardTask::add(fast);
    if (fast) return Store();
    MultiplySlowly(blocks, columns, right, {sums_, kSides, kSides, TileStore::add});
    in_tiles_ = false;
  }

  /// Writes out[row * ld + column] for all columns and for 16 or 32 rows.
  void WriteTo(float* out, std::size_t ld) const {
    const hn::ScalableTag<float> d;
    for (std::size_t row = 0; row < (both_ ? kSides : kEdge); row += 16 / sizeof(float)) {
      for (std::size_t c = 0; c < kSides; c += HWY_LANES(float)) {
        TransposePieces(
            d, [&](std::size_t i) { return sums_ + (c + i) * kSides + row; }, row,
            [&](std::size_t at, hn::Vec<decltype(d)> v) HWY_ATTR { hn::StoreU(v, d, out + at * ld + c); });
      }
    }
  }

 private:
  /// Loads the sums into tiles if they are not there. Returns false if tiles may not add to them.
  bool Load() {
    if (in_tiles_) return true;
    if (!AreMultiples({sums_, kSides, kSides, TileStore::add})) return false;
    tiles_.template load<0>(sums_, kRow);
    tiles_.template load<1>(sums_ + kEdge, kRow);
    tiles_.template load<2>(sums_ + kEdge * kSides, kRow);
    tiles_.template load<3>(sums_ + kEdge * kSides + kEdge, kRow);
    return in_tiles_ = true;
  }

  void Store() {
    tiles_.template store<0>(sums_, kRow);
    tiles_.template store<2>(sums_ + kEdge * kSides, kRow);
    if (!both_) return;
    tiles_.template store<1>(sums_ + kEdge, kRow);
    tiles_.template store<3>(sums_ + kEdge * kSides + kEdge, kRow);
  }

  /// Adds blocks to the sums in tiles. Returns false if a factor of the columns that is not zero has a
  /// smaller biased exponent than `least`; the tiles' contents are then useless.
  template <bool kBoth>
  HWY_NOINLINE bool AddBlocks(std::size_t blocks, const TilePlaces& columns, const Word* b,
                              std::uint32_t least, const std::uint8_t* ahead) {
    const std::uint8_t* left = columns.first;
    Smallest smallest;
    for (std::size_t i = 0; i < blocks; ++i, left += columns.block, b += kBlockWords) {
      const std::uint8_t* lower = left + columns.half;
      tiles_.template load<6>(b, kTileRowBytes);
      tiles_.template load<4>(left, columns.row);
      tiles_.template multiply_add<0, 4, 6>();
      if constexpr (kBoth) {
        tiles_.template load<7>(b + kTileWords, kTileRowBytes);
        tiles_.template multiply_add<1, 4, 7>();
      }
      tiles_.template load<5>(lower, columns.row);
      tiles_.template multiply_add<2, 5, 6>();
      if constexpr (kBoth) tiles_.template multiply_add<3, 5, 7>();
      for (std::size_t row = 0; row < kEdge; ++row) {
        SeeRow(left + row * columns.row, smallest);
        SeeRow(lower + row * columns.row, smallest);
        if (ahead == nullptr) continue;
        __builtin_prefetch(ahead, 0, kThinLevel);
        __builtin_prefetch(ahead + kTileRowBytes, 0, kThinLevel);
        ahead += 2 * kTileRowBytes;
      }
    }
    return !smallest.Below(least);
  }

  static HWY_INLINE void SeeRow(const std::uint8_t* row, Smallest& smallest) {
    const hn::ScalableTag<Word> d;
    const hn::Repartition<std::uint8_t, decltype(d)> bytes;
    for (std::size_t i = 0; i < kTileRowBytes; i += HWY_LANES(std::uint8_t))
      smallest.See(hn::BitCast(d, hn::LoadU(bytes, row + i)));
  }

  static constexpr std::size_t kRow = kSides * sizeof(float);

  bool both_, in_tiles_ = true;
  Tiles tiles_;
  HWY_ALIGN float sums_[kSides * kSides] = {};  // after the last segment
};

}  // namespace tiles
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_TILES_INL_H_
