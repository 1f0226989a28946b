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
    case BlockFormat::mxfp6_e2m3:
      return call(std::integral_constant<BlockFormat, BlockFormat::mxfp6_e2m3>());
    case BlockFormat::mxfp6_e3m2:
      return call(std::integral_constant<BlockFormat, BlockFormat::mxfp6_e3m2>());
    case BlockFormat::mxfp4:
      return call(std::integral_constant<BlockFormat, BlockFormat::mxfp4>());
    case BlockFormat::nvfp4:
      return call(std::integral_constant<BlockFormat, BlockFormat::nvfp4>());
  }
}

/// WithFormat() for readers of codes: formats that are stored alike are one.
template <class Call>
HWY_INLINE void WithCodes(BlockFormat format, const Call& call) {
  const bool six_bits = format == BlockFormat::mxfp6_e2m3 || format == BlockFormat::mxfp6_e3m2;
  switch (six_bits ? BlockFormat::mxfp8 : format) {
    case BlockFormat::mxfp8_e5m2:
      return call(std::integral_constant<BlockFormat, BlockFormat::mxfp8_e5m2>());
    case BlockFormat::mxfp4:
      return call(std::integral_constant<BlockFormat, BlockFormat::mxfp4>());
    case BlockFormat::nvfp4:
      return call(std::integral_constant<BlockFormat, BlockFormat::nvfp4>());
    default:
      return call(std::integral_constant<BlockFormat, BlockFormat::mxfp8>());
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

  explicit BlockRounder(float tensor_scale, ScaleRounding rounding = ScaleRounding::floor)
      : tensor_scale_(tensor_scale), rounding_(rounding) {}

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
    if (divides_by_f32()) {
      const V scale = hn::IfThenElse(finite, hn::Div(amax, hn::Set(d, kMaxFinite)), nan);
      return {scale, scale};
    }
    if constexpr (kTraits.power_of_two_scale) {
      const DU du;
      const Bits code = ScaleCode(most);
      const Bits power =
          hn::IfThenElse(hn::Eq(code, hn::Zero(du)), hn::Set(du, kLeastScale), hn::ShiftLeft<23>(code));
      const auto fits = hn::And(finite, hn::RebindMask(d, hn::Lt(code, hn::Set(du, 255U))));
      const V scale = hn::IfThenElse(fits, hn::BitCast(d, power), nan);
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
    const V magnitude = Scaled(x, s);
    // Adding 1.5 · 2^23 steps makes the hardware's addition round to a whole number of steps.
    const V shift = hn::Mul(hn::Max(PowerBelow(magnitude), hn::Set(d, kSmallestNormal)),
                            hn::Set(d, 0x1.8p23F * PowerOfTwo<float>(-kTraits.mantissa_bits)));
    return hn::Min(hn::Sub(hn::Add(magnitude, shift), shift), hn::Set(d, kMaxFinite));
  }

  /// The same, rounded to the element above if the first 32 bits of the fraction exceed `random`.
  HWY_INLINE V Magnitude(V x, const Scales& s, Bits random) const {
    const D d;
    const DU du;
    const hn::RebindToSigned<D> di;
    const V magnitude = Scaled(x, s);
    const V step = hn::Mul(hn::Max(PowerBelow(magnitude), hn::Set(d, kSmallestNormal)),
                           hn::Set(d, PowerOfTwo<float>(-kTraits.mantissa_bits)));
    const V steps = hn::Div(magnitude, step), whole = hn::Floor(steps);  // exact
    const V places = hn::Mul(hn::Sub(steps, whole), hn::Set(d, 0x1p16F)), high = hn::Floor(places);
    const V low = hn::Floor(hn::Mul(hn::Sub(places, high), hn::Set(d, 0x1p16F)));
    const Bits fraction = hn::Or(hn::ShiftLeft<16>(hn::BitCast(du, hn::ConvertTo(di, high))),
                                 hn::BitCast(du, hn::ConvertTo(di, low)));
    const V up = hn::IfThenElseZero(hn::RebindMask(d, hn::Gt(fraction, random)), hn::Set(d, 1.0F));
    return hn::Min(hn::Mul(hn::Add(whole, up), step), hn::Set(d, kMaxFinite));
  }

  /// The rounded elements times their scales. `random` as for Magnitude(), or nothing.
  template <class... Random>
  HWY_INLINE V Round(V x, const Scales& s, Random... random) const {
    const V value = hn::Mul(hn::CopySignToAbs(Magnitude(x, s, random...), x), s.scale);
    if (kTraits.power_of_two_scale && !divides_by_f32()) return value;
    return hn::IfThenElse(hn::Eq(s.scale, hn::Zero(D())), hn::CopySign(hn::Zero(D()), x), value);
  }

 private:
  static constexpr BlockTraits kTraits = traits(F);
  static constexpr float kMaxFinite = static_cast<float>(kTraits.max_finite);
  static constexpr float kSmallestNormal = PowerOfTwo<float>(kTraits.min_normal_exp);
  static constexpr std::uint32_t kInfinity = 0x7f800000U, kNan = 0x7fc00000U, kLeastScale = 0x00400000U,
                                 kMantissa = 0x007fffffU;

  /// 2^⌊log2 x⌋ for x ≥ 0; 0 below the normal range of f32.
  static HWY_INLINE V PowerBelow(V x) {
    const D d;
    return hn::And(x, hn::BitCast(d, hn::Set(DU(), kInfinity)));
  }

  HWY_INLINE V Scaled(V x, const Scales& s) const {
    const bool multiplies = kTraits.power_of_two_scale && !divides_by_f32();
    return hn::Abs(multiplies ? hn::Mul(x, s.by) : hn::Div(x, s.by));
  }

  /// True if the scale of an mx block is an f32 number.
  HWY_INLINE bool divides_by_f32() const {
    return kTraits.power_of_two_scale && rounding_ == ScaleRounding::none;
  }

  /// The e8m0 codes of the scales of blocks with finite largest magnitudes `most`, by `rounding_`; 255: NaN.
  HWY_INLINE Bits ScaleCode(Bits most) const {
    const D d;
    const DU du;
    const auto exponent_of = [&](Bits bits) HWY_ATTR {
      const Bits least = hn::Set(du, static_cast<std::uint32_t>(kTraits.max_exp));
      return hn::Sub(hn::Max(hn::ShiftRight<23>(bits), least), least);
    };
    switch (rounding_) {
      case ScaleRounding::floor:
      case ScaleRounding::none:
        break;
      case ScaleRounding::ceil:
        return exponent_of(hn::Add(most, hn::Set(du, kMantissa)));
      case ScaleRounding::even: {
        // As in torchao, a largest magnitude that rounds beyond the range of f32 makes the block NaN.
        const Bits half =
            hn::Set(du, std::uint32_t{1} << (22U - static_cast<unsigned>(kTraits.mantissa_bits)));
        const Bits rounded = hn::Add(most, half);
        const auto beyond = hn::Gt(rounded, hn::Set(du, kInfinity - 1));
        return hn::IfThenElse(beyond, hn::Set(du, 255U), exponent_of(rounded));
      }
      case ScaleRounding::rceil: {
        const V fit = hn::Mul(hn::BitCast(d, most), hn::Set(d, 1.0F / kMaxFinite));
        const Bits bits = hn::BitCast(du, fit);
        const auto least = hn::Gt(bits, hn::Set(du, kLeastScale));
        return hn::IfThenElseZero(least, hn::ShiftRight<23>(hn::Add(bits, hn::Set(du, kMantissa))));
      }
    }
    return exponent_of(most);
  }

  float tensor_scale_;
  ScaleRounding rounding_;
};

/// The largest magnitudes of the blocks of a part of one or more rows, as bits.
template <BlockFormat F>
class BlockMaxima {
  using Rounder = BlockRounder<F>;

 public:
  static constexpr auto kBlock = static_cast<std::size_t>(traits(F).block);
  static constexpr std::size_t kBlocks = 64, kMost = kBlocks * kBlock;  // elements

  /// Of n ≤ kMost elements.
  explicit BlockMaxima(std::size_t n) : elements_(n), count_((n + kBlock - 1) / kBlock) {
    std::fill_n(most_, count_ + hn::Lanes(typename Rounder::D()), 0U);
  }

  /// Includes the elements of a row.
  HWY_INLINE void Add(const float* HWY_RESTRICT row) {
    const typename Rounder::D d;
    const typename Rounder::DU du;
    const std::size_t lanes = hn::Lanes(d);
    for (std::size_t b = 0; b < count_; ++b) {
      const std::size_t begin = b * kBlock, count = std::min(kBlock, elements_ - begin);
      auto largest = hn::Zero(du);
      for (std::size_t i = 0; i < count; i += lanes)
        largest = Rounder::Largest(largest, LoadCount(d, row + begin + i, count - i));
      most_[b] = std::max(most_[b], hn::GetLane(hn::MaxOfLanes(du, largest)));
    }
  }

  /// Lets every `length` elements share their largest magnitude; 0: every block has its own.
  HWY_INLINE void Share(std::int32_t length) {
    const std::size_t group = length < 0 ? count_ : static_cast<std::size_t>(length) / kBlock;
    for (std::size_t b = 0; group > 1 && b < count_; b += group) {
      const std::size_t n = std::min(group, count_ - b);
      std::fill_n(most_ + b, n, *std::max_element(most_ + b, most_ + b + n));
    }
  }

  /// Gives all blocks the magnitude `most`.
  HWY_INLINE void ShareWithAll(std::uint32_t most) { std::fill_n(most_, count_, most); }

  std::size_t count() const { return count_; }
  const std::uint32_t* bits() const { return most_; }
  std::uint32_t largest() const { return count_ == 0 ? 0 : *std::max_element(most_, most_ + count_); }

 private:
  HWY_ALIGN std::uint32_t most_[kBlocks + HWY_MAX_BYTES / sizeof(float)];
  std::size_t elements_, count_;
};

/// The scales of the blocks of a part of a row.
template <BlockFormat F>
class BlockScales {
  using Rounder = BlockRounder<F>;

 public:
  using Maxima = BlockMaxima<F>;
  static constexpr std::size_t kBlock = Maxima::kBlock, kMost = Maxima::kMost;

  HWY_INLINE BlockScales(const Rounder& rounder, const Maxima& maxima) : count_(maxima.count()) {
    const typename Rounder::D d;
    const typename Rounder::DU du;
    for (std::size_t b = 0; b < count_; b += hn::Lanes(d)) {
      const auto scales = rounder.ScalesOf(hn::Load(du, maxima.bits() + b));
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
  static constexpr std::size_t kBlocks = Maxima::kBlocks;

  HWY_ALIGN float scale_[kBlocks + HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float by_[kBlocks + HWY_MAX_BYTES / sizeof(float)];
  std::size_t count_;
};

/// Rounds row[0, n), whose blocks have these scales. `random`: bits for each element, or null to round to
/// nearest.
template <BlockFormat F>
HWY_INLINE void RoundPart(const BlockRounder<F>& rounder, const BlockScales<F>& scales,
                          const std::uint32_t* HWY_RESTRICT random, std::size_t n, float* HWY_RESTRICT row) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr std::size_t kBlock = BlockScales<F>::kBlock;
  for (std::size_t b = 0; b < scales.count(); ++b) {
    const std::size_t end = std::min(n, (b + 1) * kBlock);
    const auto of_block = scales.Of(b);
    for (std::size_t i = b * kBlock; i < end; i += hn::Lanes(d)) {
      const auto x = LoadCount(d, row + i, end - i);
      const auto value = random == nullptr ? rounder.Round(x, of_block)
                                           : rounder.Round(x, of_block, LoadCount(du, random + i, end - i));
      StoreCount(value, d, row + i, end - i);
    }
  }
}

/// Rounds row[0, n) in blocks, the first of which starts at row[0].
template <BlockFormat F>
HWY_INLINE void RoundBlocksOf(float* HWY_RESTRICT row, std::size_t n, float tensor_scale,
                              ScaleRounding rounding) {
  const BlockRounder<F> rounder(tensor_scale, rounding);
  using Maxima = BlockMaxima<F>;
  for (std::size_t begin = 0; begin < n; begin += Maxima::kMost) {
    const std::size_t some = std::min(Maxima::kMost, n - begin);
    Maxima maxima(some);
    maxima.Add(row + begin);
    RoundPart<F>(rounder, BlockScales<F>(rounder, maxima), nullptr, some, row + begin);
  }
}

/// The same for a format that is known only at run time.
inline void RoundBlocks(BlockFormat format, float* HWY_RESTRICT row, std::size_t n, float tensor_scale,
                        ScaleRounding rounding = ScaleRounding::floor) {
  WithFormat(format, [&](auto f) HWY_ATTR { RoundBlocksOf<f()>(row, n, tensor_scale, rounding); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_SCALED_INL_H_
