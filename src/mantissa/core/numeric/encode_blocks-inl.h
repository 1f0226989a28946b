// Encodes rows in block formats (core/numeric/block_codes.h). Included once per instruction set (Highway's
// -inl.h idiom).
#if defined(MANTISSA_NUMERIC_ENCODE_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_ENCODE_BLOCKS_INL_H_
#undef MANTISSA_NUMERIC_ENCODE_BLOCKS_INL_H_
#else
#define MANTISSA_NUMERIC_ENCODE_BLOCKS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mantissa/core/numeric/convert-inl.h"
#include "mantissa/core/numeric/scaled-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Writes the codes of one vector of scales, one byte per lane.
template <BlockFormat F>
HWY_INLINE void StoreScaleCodes(hn::Vec<hn::ScalableTag<float>> scale, std::uint8_t* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  if constexpr (traits(F).power_of_two_scale) {
    // The exponent field of an f32: 0 for 2^-127, 255 for NaN.
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::RebindToSigned<decltype(d)> di;
    const hn::Rebind<std::uint8_t, decltype(d)> du8;
    const auto exponent = hn::And(hn::ShiftRight<23>(hn::BitCast(du, scale)), hn::Set(du, 0xffU));
    hn::StoreU(hn::DemoteTo(du8, hn::BitCast(di, exponent)), du8, to);
  } else {
    StoreGridLanes<Scalar::e4m3>(d, scale, to);
  }
}

/// Rounds one vector with the scales of its lanes and writes the codes, one byte per element. `random`: bits
/// of the lanes, or nothing to round to nearest.
template <BlockFormat F, class... Random>
HWY_INLINE void StoreElementCodes(const BlockRounder<F>& rounder, typename BlockRounder<F>::V x,
                                  const typename BlockRounder<F>::Scales& scales,
                                  std::uint8_t* HWY_RESTRICT to, Random... random) {
  const typename BlockRounder<F>::D d;
  const auto has_scale = hn::Gt(scales.scale, hn::Zero(d));
  const auto magnitude = hn::IfThenElseZero(has_scale, rounder.Magnitude(x, scales, random...));
  if constexpr (F == BlockFormat::mxfp8_e5m2) {
    StoreGridLanes<Scalar::e5m2>(d, hn::CopySignToAbs(magnitude, x), to);
  } else if constexpr (traits(F).element_bits == 8) {
    StoreGridLanes<Scalar::e4m3>(d, hn::CopySignToAbs(magnitude, x), to);
  } else {
    // The codes 0 … 7 mean 0, 0.5, 1, 1.5, 2, 3, 4, 6: three straight lines, each lowest where it applies.
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::RebindToSigned<decltype(d)> di;
    const hn::Rebind<std::uint8_t, decltype(d)> du8;
    const auto steep = hn::Add(magnitude, magnitude), middle = hn::Add(magnitude, hn::Set(d, 2.0F));
    const auto flat = hn::Add(hn::Mul(magnitude, hn::Set(d, 0.5F)), hn::Set(d, 4.0F));
    const auto code = hn::ConvertTo(di, hn::Min(hn::Min(steep, middle), flat));
    const auto sign = hn::And(hn::ShiftRight<28>(hn::BitCast(du, x)), hn::Set(du, 8U));
    hn::StoreU(hn::DemoteTo(du8, hn::Or(code, hn::BitCast(di, sign))), du8, to);
  }
}

/// Packs codes[0, n) of 4 bits, one byte each, two to a byte. `codes` is readable up to a multiple of the
/// vector's bytes, and zero from n on.
HWY_INLINE void PackHalves(const std::uint8_t* HWY_RESTRICT codes, std::size_t n,
                           std::uint8_t* HWY_RESTRICT to) {
  const hn::ScalableTag<std::uint16_t> d16;
  const hn::Repartition<std::uint8_t, decltype(d16)> d8;
  const hn::Rebind<std::uint8_t, decltype(d16)> half;
  const std::size_t step = hn::Lanes(d8);
  for (std::size_t i = 0; i < n; i += step) {
    const auto pairs = hn::BitCast(d16, hn::LoadU(d8, codes + i));
    const auto bytes = hn::TruncateTo(half, hn::Or(pairs, hn::ShiftRight<4>(pairs)));
    StoreCount(bytes, half, to + i / 2, (n - i + 1) / 2);
  }
}

/// Writes codes[0, n), one byte each, as they are stored.
template <BlockFormat F>
HWY_INLINE void StoreCodes(const std::uint8_t* HWY_RESTRICT codes, std::size_t n,
                           std::uint8_t* HWY_RESTRICT to) {
  if constexpr (traits(F).element_bits == 4) {
    PackHalves(codes, n, to);
  } else {
    std::memcpy(to, codes, n);
  }
}

/// Encodes row[0, n), whose blocks have these scales. A block that is not finite has the scale NaN and
/// elements of zero. `random`: bits for each element, or null to round to nearest.
template <BlockFormat F>
HWY_INLINE void EncodeRow(const BlockRounder<F>& rounder, const BlockScales<F>& scales,
                          const float* HWY_RESTRICT row, std::size_t n,
                          const std::uint32_t* HWY_RESTRICT random, std::uint8_t* HWY_RESTRICT elements,
                          std::uint8_t* HWY_RESTRICT scale_codes) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  using Scales = BlockScales<F>;
  HWY_ALIGN std::uint8_t codes[Scales::kMost + HWY_MAX_BYTES];
  for (std::size_t b = 0; b < scales.count(); b += hn::Lanes(d))
    StoreScaleCodes<F>(scales.Scale(b), codes + b);
  std::memcpy(scale_codes, codes, scales.count());
  for (std::size_t b = 0; b < scales.count(); ++b) {
    const std::size_t first = b * Scales::kBlock, end = std::min(first + Scales::kBlock, n);
    const auto of_block = scales.Of(b);
    for (std::size_t i = first; i < end; i += hn::Lanes(d)) {
      const auto x = LoadCount(d, row + i, end - i);
      if (random == nullptr) {
        StoreElementCodes(rounder, x, of_block, codes + i);
      } else {
        StoreElementCodes(rounder, x, of_block, codes + i, LoadCount(du, random + i, end - i));
      }
    }
  }
  std::fill_n(codes + n, HWY_MAX_BYTES, std::uint8_t{0});
  StoreCodes<F>(codes, n, elements);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_ENCODE_BLOCKS_INL_H_
