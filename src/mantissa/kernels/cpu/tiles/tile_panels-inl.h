// Products of bf16 operands that lie in tiles of TDPBF16PS (cpu/amx_tiles.h), by the instruction or its model
// and by fused multiply-adds. Every element of C is a sum in tile order (SumOrder::tile).
#if defined(MANTISSA_KERNELS_CPU_TILE_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_TILE_PANELS_INL_H_
#undef MANTISSA_KERNELS_CPU_TILE_PANELS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_TILE_PANELS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "mantissa/kernels/cpu/gemm/bf16-inl.h"
#include "mantissa/kernels/cpu/gemm/tiles_pack-inl.h"
#include "mantissa/kernels/cpu/tiles/amx_tiles.h"
#include "mantissa/kernels/cpu/tiles/model_tiles.h"
#include "mantissa/kernels/guard_count.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace tiles {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3
using Amx = HardwareTiles;
#else
using Amx = ModelTiles;  // processors with AMX have AVX-512
#endif

/// Configures the tiles of a kernel's task, or those of the model, and counts its products.
class Scope : GuardTask {
 public:
  explicit Scope(bool model) {
    if (model) {
      model_.emplace();
    } else {
      amx_.emplace();
    }
  }

 private:
  std::optional<Amx::Scope> amx_;
  std::optional<ModelTiles::Scope> model_;
};

/// Sums in 2 × 2 tiles, or in one row or column of them. `ld` is in elements.
template <class Tiles, bool kTwoRows, bool kTwoColumns>
class TileSums {
 public:
  static_assert(kEdge == kTileRegisterRows && kEdge * sizeof(Word) == kTileRowBytes);

  HWY_INLINE void Zero() {
    t_.template zero<0>();
    if constexpr (kTwoColumns) t_.template zero<1>();
    if constexpr (kTwoRows) t_.template zero<2>();
    if constexpr (kTwoRows && kTwoColumns) t_.template zero<3>();
  }
  HWY_INLINE void Load(const float* c, std::size_t ld) {
    const std::size_t stride = ld * sizeof(float);
    t_.template load<0>(c, stride);
    if constexpr (kTwoColumns) t_.template load<1>(c + kEdge, stride);
    if constexpr (kTwoRows) t_.template load<2>(c + kEdge * ld, stride);
    if constexpr (kTwoRows && kTwoColumns) t_.template load<3>(c + kEdge * ld + kEdge, stride);
  }
  /// Adds blocks of 32 terms. Calls each() once for each. With `kStreams`, the tiles of B are not kept in the
  /// first-level cache.
  template <bool kStreams, class Each>
  HWY_INLINE void Add(std::size_t blocks, TilePlaces a, TilePlaces b, const Each& each) {
    for (std::size_t i = 0; i < blocks; ++i, a.first += a.block, b.first += b.block) {
      t_.template load<4>(a.first, a.row);
      LoadB<6, kStreams>(b.first, b.row);
      t_.template multiply_add<0, 4, 6>();
      if constexpr (kTwoColumns) {
        LoadB<7, kStreams>(b.first + b.half, b.row);
        t_.template multiply_add<1, 4, 7>();
      }
      if constexpr (kTwoRows) {
        t_.template load<5>(a.first + a.half, a.row);
        t_.template multiply_add<2, 5, 6>();
        if constexpr (kTwoColumns) t_.template multiply_add<3, 5, 7>();
      }
      each();
    }
  }
  HWY_INLINE void Store(float* c, std::size_t ld) const {
    const std::size_t stride = ld * sizeof(float);
    t_.template store<0>(c, stride);
    if constexpr (kTwoColumns) t_.template store<1>(c + kEdge, stride);
    if constexpr (kTwoRows) t_.template store<2>(c + kEdge * ld, stride);
    if constexpr (kTwoRows && kTwoColumns) t_.template store<3>(c + kEdge * ld + kEdge, stride);
  }

 private:
  template <int kTile, bool kStreams>
  HWY_INLINE void LoadB(const void* rows, std::size_t stride) {
    if constexpr (kStreams) {
      t_.template load_once<kTile>(rows, stride);
    } else {
      t_.template load<kTile>(rows, stride);
    }
  }

  Tiles t_;
};

/// Adds blocks of 32 terms to C, which starts at +0 with `from_zero`.
template <class Tiles, bool kTwoRows, bool kTwoColumns>
HWY_INLINE void AddBlocks(std::size_t blocks, const TilePlaces& a, const TilePlaces& b, float* c,
                          std::size_t ldc, bool from_zero) {
  TileSums<Tiles, kTwoRows, kTwoColumns> sums;
  from_zero ? sums.Zero() : sums.Load(c, ldc);
  sums.template Add<false>(blocks, a, b, [] {});
  sums.Store(c, ldc);
}

/// The terms of a sum by fused multiply-adds: all of them.
struct EveryTerm {
  template <class V>
  HWY_INLINE V Keep(std::size_t /*term*/, V next, V /*before*/) const {
    return next;
  }
};

/// The terms of a range, which each lane has its own.
class TermsOfLanes {
 public:
  using D = hn::ScalableTag<std::int32_t>;
  HWY_INLINE TermsOfLanes(const std::int32_t* begin, const std::int32_t* end)
      : begin_(hn::LoadU(D(), begin)), end_(hn::LoadU(D(), end)) {}
  template <class V>
  HWY_INLINE V Keep(std::size_t term, V next, V before) const {
    const auto at = hn::Set(D(), static_cast<std::int32_t>(term));
    const auto inside = hn::And(hn::Not(hn::Lt(at, begin_)), hn::Lt(at, end_));
    return hn::IfThenElse(hn::RebindMask(hn::ScalableTag<float>(), inside), next, before);
  }

 private:
  hn::Vec<D> begin_, end_;
};

/// Adds the terms of `blocks` blocks that `terms` keeps to one vector of C, in row `row` and from `column`
/// on, by fused multiply-adds.
template <class Terms>
HWY_INLINE hn::Vec<hn::ScalableTag<float>> SlowSums(std::size_t blocks, const TilePlaces& a, std::size_t row,
                                                    const TilePlaces& b, std::size_t column,
                                                    hn::Vec<hn::ScalableTag<float>> sum, const Terms& terms) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<Word> du;
  using Words = hn::Vec<decltype(du)>;
  const auto even = [&](Words pair) HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<16>(pair)); };
  const auto odd = [&](Words pair)
                       HWY_ATTR { return hn::BitCast(d, hn::And(pair, hn::Set(du, 0xffff0000))); };
  const std::uint8_t *left = a.at(row), *right = b.From(column).first + column % kEdge * sizeof(Word);
  for (std::size_t i = 0; i < blocks; ++i, left += a.block, right += b.block) {
    auto of_even = hn::Zero(d), of_odd = hn::Zero(d);
    for (std::size_t p = 0; p < kEdge; ++p) {
      const std::size_t term = i * 2 * kEdge + 2 * p;
      Word pair = 0;  // not aligned in a source
      std::memcpy(&pair, left + p * sizeof pair, sizeof pair);
      const auto x = hn::Set(du, pair), y = hn::LoadU(du, reinterpret_cast<const Word*>(right + p * b.row));
      of_even = terms.Keep(term, hn::MulAdd(even(x), even(y), of_even), of_even);
      of_odd = terms.Keep(term + 1, hn::MulAdd(odd(x), odd(y), of_odd), of_odd);
    }
    sum = hn::Add(sum, hn::Add(of_even, of_odd));
  }
  return sum;
}

}  // namespace tiles
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_TILE_PANELS_INL_H_
