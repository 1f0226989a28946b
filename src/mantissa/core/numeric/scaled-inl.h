// Blocks with shared scales, in vectors, as core/numeric/scaled.h defines them. Included once
// per instruction set (Highway's -inl.h idiom).
#if defined(MANTISSA_NUMERIC_SCALED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_SCALED_INL_H_
#undef MANTISSA_NUMERIC_SCALED_INL_H_
#else
#define MANTISSA_NUMERIC_SCALED_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mantissa/core/numeric/convert-inl.h"
#include "mantissa/core/numeric/power_of_two.h"
#include "mantissa/core/numeric/scaled.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Calls call(f) with the format as a constant, f = std::integral_constant<BlockFormat, …>.
template <class Call>
HWY_INLINE void WithFormat(BlockFormat format, const Call& call) {
  switch (format) {
    case BlockFormat::mxfp8:
      return call(std::integral_constant<BlockFormat, BlockFormat::mxfp8>());
    case BlockFormat::mxfp8_e5m2:
      return call(std::integral_constant<BlockFormat, BlockFormat::mxfp8_e5m2>());
    case BlockFormat::mxfp4:
      return call(std::integral_constant<BlockFormat, BlockFormat::mxfp4>());
    case BlockFormat::nvfp4:
      return call(std::integral_constant<BlockFormat, BlockFormat::nvfp4>());
  }
}

/// Rounds vectors of elements with the scale of each lane's own block.
template <BlockFormat F>
class BlockRounder {
 public:
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using DU = hn::RebindToUnsigned<D>;
  using Bits = hn::Vec<DU>;

  explicit BlockRounder(float tensor_scale) : tensor_scale_(tensor_scale) {}

  /// Returns the largest magnitude of each lane, of those so far and of x, as bits. Those of numbers that are
  /// not finite exceed all others. Start with hn::Zero.
  static HWY_INLINE Bits Largest(Bits most, V x) { return hn::Max(most, hn::BitCast(DU(), hn::Abs(x))); }

  struct Scales {
    V scale;  // multiplies the rounded elements
    V by;     // divides the elements before they round; multiplies them if scales are powers of two
  };

  /// The scales of blocks with the largest magnitudes `most`.
  HWY_INLINE Scales ScalesOf(Bits most) const {
    const D d;
    const V amax = hn::BitCast(d, most);
    const auto finite = hn::RebindMask(d, hn::Lt(most, hn::Set(DU(), kInfinity)));
    const V nan = hn::BitCast(d, hn::Set(DU(), kNan));
    if constexpr (kTraits.power_of_two_scale) {
      const V down = hn::Set(d, PowerOfTwo<float>(-kTraits.max_exp)), least = hn::Set(d, 0x1p-127F);
      const V scale = hn::IfThenElse(finite, hn::Max(hn::Mul(PowerBelow(amax), down), least), nan);
      return {scale, hn::Div(hn::Set(d, 1.0F), scale)};  // exact
    } else {
      const V most_scale = hn::Div(hn::Div(amax, hn::Set(d, kMaxFinite)), hn::Set(d, tensor_scale_));
      const V limit = hn::Set(d, static_cast<float>(traits(Scalar::e4m3).max_finite));
      const V scale = hn::IfThenElse(finite, RoundLanes<Scalar::e4m3>(d, hn::Min(most_scale, limit)), nan);
      return {scale, hn::Mul(scale, hn::Set(d, tensor_scale_))};
    }
  }

  /// The magnitudes of the rounded elements. Meaningless if the scale is 0 or NaN.
  HWY_INLINE V Magnitude(V x, const Scales& s) const {
    const D d;
    const V magnitude = hn::Abs(kTraits.power_of_two_scale ? hn::Mul(x, s.by) : hn::Div(x, s.by));
    // Adding 1.5 · 2^23 steps makes the hardware's addition round to a whole number of steps.
    const V shift = hn::Mul(hn::Max(PowerBelow(magnitude), hn::Set(d, kSmallestNormal)),
                            hn::Set(d, 0x1.8p23F * PowerOfTwo<float>(-kTraits.mantissa_bits)));
    return hn::Min(hn::Sub(hn::Add(magnitude, shift), shift), hn::Set(d, kMaxFinite));
  }

  HWY_INLINE V Round(V x, const Scales& s) const {
    const V value = hn::Mul(hn::CopySignToAbs(Magnitude(x, s), x), s.scale);
    if constexpr (kTraits.power_of_two_scale) return value;
    return hn::IfThenElse(hn::Eq(s.scale, hn::Zero(D())), hn::CopySign(hn::Zero(D()), x), value);
  }

 private:
  static constexpr BlockTraits kTraits = traits(F);
  static constexpr float kMaxFinite = static_cast<float>(kTraits.max_finite);
  static constexpr float kSmallestNormal = PowerOfTwo<float>(kTraits.min_normal_exp);
  static constexpr std::uint32_t kInfinity = 0x7f800000U, kNan = 0x7fc00000U;

  /// 2^⌊log2 x⌋ for x ≥ 0; 0 below the normal range of f32.
  static HWY_INLINE V PowerBelow(V x) {
    const D d;
    return hn::And(x, hn::BitCast(d, hn::Set(DU(), kInfinity)));
  }

  float tensor_scale_;
};

/// The scales of the blocks of a part of a row.
template <BlockFormat F>
class BlockScales {
  using Rounder = BlockRounder<F>;

 public:
  static constexpr auto kBlock = static_cast<std::size_t>(traits(F).block);
  static constexpr std::size_t kMost = 64 * kBlock;  // elements

  /// `row` has n ≤ kMost elements.
  HWY_INLINE BlockScales(const Rounder& rounder, const float* HWY_RESTRICT row, std::size_t n) {
    const typename Rounder::D d;
    const typename Rounder::DU du;
    HWY_ALIGN std::uint32_t most[kBlocks + HWY_MAX_BYTES / sizeof(float)];
    const std::size_t lanes = hn::Lanes(d);
    for (std::size_t begin = 0; begin < n; begin += kBlock, ++count_) {
      const std::size_t count = std::min(kBlock, n - begin);
      auto largest = hn::Zero(du);
      for (std::size_t i = 0; i < count; i += lanes)
        largest = Rounder::Largest(largest, LoadCount(d, row + begin + i, count - i));
      most[count_] = hn::GetLane(hn::MaxOfLanes(du, largest));
    }
    std::fill_n(most + count_, lanes, 0U);
    for (std::size_t b = 0; b < count_; b += lanes) {
      const auto scales = rounder.ScalesOf(hn::Load(du, most + b));
      hn::Store(scales.scale, d, scale_ + b);
      hn::Store(scales.by, d, by_ + b);
    }
  }

  std::size_t count() const { return count_; }
  /// The scales of blocks from `block` on, one in each lane.
  HWY_INLINE typename Rounder::V Scale(std::size_t block) const {
    return hn::LoadU(typename Rounder::D(), scale_ + block);
  }
  /// The scales of one block, in every lane.
  HWY_INLINE typename Rounder::Scales Of(std::size_t block) const {
    const typename Rounder::D d;
    return {hn::Set(d, scale_[block]), hn::Set(d, by_[block])};
  }

 private:
  static constexpr std::size_t kBlocks = kMost / kBlock;

  HWY_ALIGN float scale_[kBlocks + HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float by_[kBlocks + HWY_MAX_BYTES / sizeof(float)];
  std::size_t count_ = 0;
};

/// Rounds row[0, n) in blocks, the first of which starts at row[0].
template <BlockFormat F>
HWY_INLINE void RoundBlocksOf(float* HWY_RESTRICT row, std::size_t n, float tensor_scale) {
  const hn::ScalableTag<float> d;
  const BlockRounder<F> rounder(tensor_scale);
  using Scales = BlockScales<F>;
  for (std::size_t begin = 0; begin < n; begin += Scales::kMost) {
    const std::size_t some = std::min(Scales::kMost, n - begin);
    const Scales scales(rounder, row + begin, some);
    for (std::size_t b = 0; b < scales.count(); ++b) {
      const std::size_t first = b * Scales::kBlock, end = std::min(some, first + Scales::kBlock);
      const auto of_block = scales.Of(b);
      for (std::size_t i = first; i < end; i += hn::Lanes(d)) {
        float* at = row + begin + i;
        StoreCount(rounder.Round(LoadCount(d, at, end - i), of_block), d, at, end - i);
      }
    }
  }
}

/// The same for a format that is known only at run time.
inline void RoundBlocks(BlockFormat format, float* HWY_RESTRICT row, std::size_t n, float tensor_scale) {
  WithFormat(format, [&](auto f) HWY_ATTR { RoundBlocksOf<f()>(row, n, tensor_scale); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_SCALED_INL_H_
