// Encodes and decodes rows of block formats (numeric/block_codes.h). Included once per instruction set
// (Highway's -inl.h idiom).
#if defined(MANTISSA_NUMERIC_BLOCK_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_BLOCK_CODES_INL_H_
#undef MANTISSA_NUMERIC_BLOCK_CODES_INL_H_
#else
#define MANTISSA_NUMERIC_BLOCK_CODES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "mantissa/numeric/block_codes.h"
#include "mantissa/numeric/convert-inl.h"
#include "mantissa/numeric/scaled-inl.h"

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

// ---- Encoding

/// Writes the codes of one vector of scales, one byte per lane.
template <BlockFormat F>
HWY_INLINE void StoreScaleCodes(BlockRounder::V scale, std::uint8_t* HWY_RESTRICT to) {
  const BlockRounder::D d;
  if constexpr (traits(F).power_of_two_scale) {
    // The exponent field of an f32: 0 for 2^-127, 255 for NaN.
    const hn::RebindToUnsigned<BlockRounder::D> du;
    const hn::RebindToSigned<BlockRounder::D> di;
    const hn::Rebind<std::uint8_t, BlockRounder::D> du8;
    const auto exponent = hn::And(hn::ShiftRight<23>(hn::BitCast(du, scale)), hn::Set(du, 0xffU));
    hn::StoreU(hn::DemoteTo(du8, hn::BitCast(di, exponent)), du8, to);
  } else {
    StoreGridLanes<Scalar::e4m3>(d, scale, to);
  }
}

/// Rounds one vector with the scales of its lanes and writes the codes, one byte per element.
template <BlockFormat F>
HWY_INLINE void StoreElementCodes(const BlockRounder& rounder, BlockRounder::V x,
                                  const BlockRounder::Scales& scales, std::uint8_t* HWY_RESTRICT to) {
  const BlockRounder::D d;
  const auto has_scale = hn::Gt(scales.scale, hn::Zero(d));
  const auto magnitude = hn::IfThenElseZero(has_scale, rounder.Magnitude(x, scales));
  if constexpr (F == BlockFormat::mxfp8) {
    StoreGridLanes<Scalar::e4m3>(d, hn::CopySignToAbs(magnitude, x), to);
  } else if constexpr (F == BlockFormat::mxfp8_e5m2) {
    StoreGridLanes<Scalar::e5m2>(d, hn::CopySignToAbs(magnitude, x), to);
  } else {
    // The codes 0 … 7 mean 0, 0.5, 1, 1.5, 2, 3, 4, 6: three straight lines, each lowest where it applies.
    const hn::RebindToUnsigned<BlockRounder::D> du;
    const hn::RebindToSigned<BlockRounder::D> di;
    const hn::Rebind<std::uint8_t, BlockRounder::D> du8;
    const auto steep = hn::Add(magnitude, magnitude), middle = hn::Add(magnitude, hn::Set(d, 2.0F));
    const auto flat = hn::Add(hn::Mul(magnitude, hn::Set(d, 0.5F)), hn::Set(d, 4.0F));
    const auto code = hn::ConvertTo(di, hn::Min(hn::Min(steep, middle), flat));
    const auto sign = hn::And(hn::ShiftRight<28>(hn::BitCast(du, x)), hn::Set(du, 8U));
    hn::StoreU(hn::DemoteTo(du8, hn::Or(code, hn::BitCast(di, sign))), du8, to);
  }
}

/// Packs codes[0, n) of 4 bits, one byte each, two to a byte. `codes` is readable up to a multiple of 16, and
/// zero from n on.
HWY_INLINE void PackHalves(const std::uint8_t* HWY_RESTRICT codes, std::size_t n,
                           std::uint8_t* HWY_RESTRICT to) {
  const hn::FixedTag<std::uint16_t, 8> d16;
  const hn::FixedTag<std::uint8_t, 8> d8;
  for (std::size_t i = 0; i < n; i += 16) {
    const auto pairs = hn::BitCast(d16, hn::LoadU(hn::FixedTag<std::uint8_t, 16>(), codes + i));
    const auto bytes = hn::TruncateTo(d8, hn::Or(pairs, hn::ShiftRight<4>(pairs)));
    if (i + 16 <= n) {
      hn::StoreU(bytes, d8, to + i / 2);
    } else {
      std::uint8_t last[8];
      hn::StoreU(bytes, d8, last);
      std::memcpy(to + i / 2, last, (n - i + 1) / 2);
    }
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

/// encode_blocks().
template <BlockFormat F>
HWY_INLINE void EncodeBlocks(const float* HWY_RESTRICT row, std::size_t n, float tensor_scale,
                             std::uint8_t* HWY_RESTRICT elements, std::uint8_t* HWY_RESTRICT scales) {
  const BlockRounder::D d;
  const BlockRounder rounder(F, tensor_scale);
  constexpr auto kBlock = static_cast<std::size_t>(traits(F).block);
  for (std::size_t begin = 0; begin < n; begin += kBlock, ++scales) {
    const std::size_t count = std::min(kBlock, n - begin);
    auto range = BlockRounder::Start();
    for (std::size_t i = 0; i < count; i += hn::Lanes(d))
      BlockRounder::See(range, LoadCount(d, row + begin + i, count - i));
    const auto scale = rounder.ScalesOf(BlockRounder::Join(range));
    HWY_ALIGN std::uint8_t codes[kLongestBlock] = {};
    StoreScaleCodes<F>(scale.scale, codes);
    *scales = codes[0];
    for (std::size_t i = 0; i < count; i += hn::Lanes(d))
      StoreElementCodes<F>(rounder, LoadCount(d, row + begin + i, count - i), scale, codes + i);
    std::fill(codes + count, codes + kBlock, std::uint8_t{0});
    StoreCodes<F>(codes, count, elements + begin * traits(F).element_bits / 8);
  }
}

/// encode_blocks(). Not inlined: there are many formats.
HWY_NOINLINE inline void EncodeRow(BlockFormat format, const float* HWY_RESTRICT row, std::size_t n,
                                   float tensor_scale, std::uint8_t* HWY_RESTRICT elements,
                                   std::uint8_t* HWY_RESTRICT scales) {
  WithFormat(format, [&](auto f) HWY_ATTR { EncodeBlocks<f()>(row, n, tensor_scale, elements, scales); });
}

// ---- Decoding

/// Writes the values of n scale codes.
template <BlockFormat F>
HWY_INLINE void DecodeScales(const std::uint8_t* HWY_RESTRICT codes, std::size_t n, float* HWY_RESTRICT to) {
  if constexpr (traits(F).power_of_two_scale) {
    const hn::ScalableTag<float> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<std::uint8_t, decltype(d)> du8;
    for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
      const auto code = hn::PromoteTo(du, LoadCount(du8, codes + i, n - i));
      const auto power = hn::ShiftLeft<23>(code);
      const auto smallest = hn::IfThenElse(hn::Eq(code, hn::Zero(du)), hn::Set(du, 0x00400000U), power);
      const auto bits = hn::IfThenElse(hn::Eq(code, hn::Set(du, 255U)), hn::Set(du, 0x7fc00000U), smallest);
      StoreCount(hn::BitCast(d, bits), d, to + i, n - i);
    }
  } else {
    LoadRowOf<Scalar::e4m3>(codes, n, to);
  }
}

/// Writes n elements of 4 bits as bf16. `to` has room for a multiple of 32.
HWY_INLINE void HalvesToBf16(const std::uint8_t* HWY_RESTRICT from, std::size_t n,
                             std::uint8_t* HWY_RESTRICT to) {
  const hn::FixedTag<std::uint8_t, 16> d;
  // The lower and upper bytes of bf16 ±0, 0.5, 1, 1.5, 2, 3, 4 and 6.
  HWY_ALIGN static constexpr std::uint8_t kLower[16] = {0, 0, 0x80, 0xC0, 0, 0x40, 0x80, 0xC0,
                                                        0, 0, 0x80, 0xC0, 0, 0x40, 0x80, 0xC0};
  HWY_ALIGN static constexpr std::uint8_t kUpper[16] = {0,    0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                                        0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
  const auto lower = hn::Load(d, kLower), upper = hn::Load(d, kUpper);
  const auto put = [&](hn::Vec<decltype(d)> codes, std::uint8_t* at) HWY_ATTR {
    const auto low = hn::TableLookupBytes(lower, codes), high = hn::TableLookupBytes(upper, codes);
    hn::StoreU(hn::InterleaveLower(d, low, high), d, at);
    hn::StoreU(hn::InterleaveUpper(d, low, high), d, at + 16);
  };
  for (std::size_t i = 0; i < n; i += 32) {
    const auto bytes = LoadCount(d, from + i / 2, (n - i + 1) / 2);
    const auto even = hn::And(bytes, hn::Set(d, std::uint8_t{0x0f})), odd = hn::ShiftRight<4>(bytes);
    put(hn::InterleaveLower(d, even, odd), to + 2 * i);
    put(hn::InterleaveUpper(d, even, odd), to + 2 * i + 32);
  }
}

/// to[i] = element i of `from`, stored as S, times scale_at(d, i), which is a vector of scales.
template <Scalar S, class ScaleAt>
HWY_INLINE void ScaleElements(const std::uint8_t* HWY_RESTRICT from, std::size_t n, const ScaleAt& scale_at,
                              float* HWY_RESTRICT to) {
  constexpr std::size_t kBytes = traits(S).bytes;
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Mul(LoadLanes<S>(d, from + i * kBytes), scale_at(d, i)), d, to + i);
  if (i == n) return;
  HWY_ALIGN std::uint8_t last[HWY_MAX_BYTES] = {};
  std::memcpy(last, from + i * kBytes, (n - i) * kBytes);
  StoreCount(hn::Mul(LoadLanes<S>(d, last), scale_at(d, i)), d, to + i, n - i);
}

/// decode_blocks().
template <BlockFormat F>
HWY_INLINE void DecodeBlocks(const CodedRow& row, std::size_t begin, std::size_t n, float* HWY_RESTRICT to) {
  constexpr bool kHalves = traits(F).element_bits == 4;
  constexpr Scalar kStored = kHalves                        ? Scalar::bf16
                             : F == BlockFormat::mxfp8_e5m2 ? Scalar::e5m2
                                                            : Scalar::e4m3;
  constexpr auto kBlock = static_cast<std::size_t>(traits(F).block);
  constexpr std::size_t kPiece = 256;
  HWY_ALIGN std::uint8_t staged[2 * kPiece];
  HWY_ALIGN float scales[kPiece + HWY_MAX_BYTES / sizeof(float)];
  while (n > 0) {
    const std::size_t skip = kHalves ? begin % 2 : 0, count = std::min(n, kPiece - skip);
    const std::uint8_t* elements = row.elements + begin;
    if constexpr (kHalves) {
      HalvesToBf16(row.elements + begin / 2, count + skip, staged);
      elements = staged + 2 * skip;
    }
    if (row.scale_per_element) {
      DecodeScales<F>(row.scales + begin, count, scales);
      ScaleElements<kStored>(
          elements, count, [&](auto d, std::size_t i) HWY_ATTR { return hn::LoadU(d, scales + i); }, to);
    } else {
      const std::size_t first = begin / kBlock;
      DecodeScales<F>(row.scales + first, (begin + count - 1) / kBlock - first + 1, scales);
      for (std::size_t i = 0, end = 0; i < count; i = end) {
        const std::size_t block = (begin + i) / kBlock;
        end = std::min(count, (block + 1) * kBlock - begin);
        const float scale = scales[block - first];
        ScaleElements<kStored>(
            elements + i * traits(kStored).bytes, end - i,
            [scale](auto d, std::size_t) HWY_ATTR { return hn::Set(d, scale); }, to + i);
      }
    }
    begin += count;
    to += count;
    n -= count;
  }
}

/// decode_blocks(). Not inlined: there are many formats, and many kernels that decode.
HWY_NOINLINE inline void DecodeRow(const CodedRow& row, std::size_t begin, std::size_t n,
                                   float* HWY_RESTRICT to) {
  WithFormat(row.format, [&](auto f) HWY_ATTR { DecodeBlocks<f()>(row, begin, n, to); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_BLOCK_CODES_INL_H_
