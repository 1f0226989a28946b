// Blocks with shared scales, in vectors, with the bits of round_block (numeric/scaled.h). Included once per
// instruction set (Highway's -inl.h idiom).
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

#include "mantissa/numeric/convert-inl.h"
#include "mantissa/numeric/power_of_two.h"
#include "mantissa/numeric/scaled.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Rounds vectors of elements with the scale of each lane's own block.
class BlockRounder {
 public:
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;

  BlockRounder(BlockFormat f, float tensor_scale)
      : t_(traits(f)),
        tensor_scale_(tensor_scale),
        down_(PowerOfTwo<float>(-t_.max_exp)),
        smallest_normal_(PowerOfTwo<float>(t_.min_normal_exp)),
        last_place_(PowerOfTwo<float>(-t_.mantissa_bits)) {}

  /// The inputs of a lane's scale.
  struct Range {
    V amax, taint;  // taint is NaN if any value is not finite
  };
  static HWY_INLINE Range Start() { return {hn::Zero(D()), hn::Zero(D())}; }
  static HWY_INLINE void See(Range& r, V x) {
    r.amax = hn::Max(r.amax, hn::Abs(x));
    r.taint = hn::Add(r.taint, hn::Sub(x, x));
  }
  /// Joins the ranges of all lanes and returns the result in every lane.
  static HWY_INLINE Range Join(const Range& r) {
    const D d;
    return {hn::MaxOfLanes(d, r.amax), hn::SumOfLanes(d, r.taint)};
  }

  struct Scales {
    V scale, whole;  // multiplies the rounded elements; divides the inputs
  };
  HWY_INLINE Scales ScalesOf(const Range& r) const {
    const D d;
    if (t_.power_of_two_scale) {
      const V floor = PowerBelow(r.amax);
      const V scale = hn::Add(hn::Max(hn::Mul(floor, hn::Set(d, down_)), hn::Set(d, 0x1p-127F)), r.taint);
      return {scale, scale};
    }
    const V most =
        hn::Div(hn::Div(r.amax, hn::Set(d, static_cast<float>(t_.max_finite))), hn::Set(d, tensor_scale_));
    const V limit = hn::Set(d, static_cast<float>(traits(Scalar::e4m3).max_finite));
    const V scale = hn::Add(RoundLanes<Scalar::e4m3>(d, hn::Min(most, limit)), r.taint);
    return {scale, hn::Mul(scale, hn::Set(d, tensor_scale_))};
  }

  /// The magnitudes of the rounded elements. Meaningless if the scale is 0 or NaN.
  HWY_INLINE V Magnitude(V x, const Scales& s) const {
    const D d;
    const V y = hn::Div(x, s.whole), magnitude = hn::Abs(y);
    // Adding 1.5 · 2^23 steps makes the hardware's addition round to a whole number of steps.
    const V step =
        hn::Mul(hn::Max(PowerBelow(magnitude), hn::Set(d, smallest_normal_)), hn::Set(d, last_place_));
    const V shift = hn::Mul(step, hn::Set(d, 0x1.8p23F));
    return hn::Min(hn::Sub(hn::Add(magnitude, shift), shift), hn::Set(d, static_cast<float>(t_.max_finite)));
  }

  HWY_INLINE V Round(V x, const Scales& s) const {
    const D d;
    const V rounded = Magnitude(x, s);
    const V value = hn::Mul(hn::CopySign(hn::Add(rounded, hn::Sub(s.scale, s.scale)), x), s.scale);
    return hn::IfThenElse(hn::Eq(s.scale, hn::Zero(d)), hn::CopySign(hn::Zero(d), x), value);
  }

 private:
  /// 2^⌊log2 x⌋ for x ≥ 0; 0 below the normal range of f32.
  static HWY_INLINE V PowerBelow(V x) {
    const D d;
    return hn::And(x, hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), 0x7f800000U)));
  }

  BlockTraits t_;
  float tensor_scale_;
  float down_, smallest_normal_, last_place_;  // powers of two of the format
};

/// Rounds row[0, n) in blocks, the first of which starts at row[0].
inline void RoundBlocks(BlockFormat f, float* HWY_RESTRICT row, std::size_t n, float tensor_scale) {
  const hn::ScalableTag<float> d;
  const BlockRounder rounder(f, tensor_scale);
  const auto block = static_cast<std::size_t>(traits(f).block);
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t end = std::min(n, begin + block);
    auto range = BlockRounder::Start();
    for (std::size_t i = begin; i < end; i += hn::Lanes(d))
      BlockRounder::See(range, LoadCount(d, row + i, end - i));
    const auto scales = rounder.ScalesOf(BlockRounder::Join(range));
    for (std::size_t i = begin; i < end; i += hn::Lanes(d))
      StoreCount(rounder.Round(LoadCount(d, row + i, end - i), scales), d, row + i, end - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_SCALED_INL_H_
