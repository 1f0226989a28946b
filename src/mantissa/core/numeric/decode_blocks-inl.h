// Decodes rows in block formats (core/numeric/block_codes.h), to f32 or to bf16. Included once per
// instruction set (Highway's -inl.h idiom).
#if defined(MANTISSA_NUMERIC_DECODE_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_DECODE_BLOCKS_INL_H_
#undef MANTISSA_NUMERIC_DECODE_BLOCKS_INL_H_
#else
#define MANTISSA_NUMERIC_DECODE_BLOCKS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mantissa/core/numeric/block_codes.h"
#include "mantissa/core/numeric/convert-inl.h"
#include "mantissa/core/numeric/scaled-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- To f32

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

/// to[i] = with(d, i, element i of `from`, stored as S).
template <Scalar S, class With>
HWY_INLINE void ForElements(const std::uint8_t* HWY_RESTRICT from, std::size_t n, const With& with,
                            float* HWY_RESTRICT to) {
  constexpr std::size_t kBytes = traits(S).bytes;
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(with(d, i, LoadLanes<S>(d, from + i * kBytes)), d, to + i);
  if (i == n) return;
  HWY_ALIGN std::uint8_t last[HWY_MAX_BYTES] = {};
  std::memcpy(last, from + i * kBytes, (n - i) * kBytes);
  StoreCount(with(d, i, LoadLanes<S>(d, last)), d, to + i, n - i);
}

/// The same, times scale_at(d, i), which is a vector of scales.
template <Scalar S, class ScaleAt>
HWY_INLINE void ScaleElements(const std::uint8_t* HWY_RESTRICT from, std::size_t n, const ScaleAt& scale_at,
                              float* HWY_RESTRICT to) {
  ForElements<S>(
      from, n, [&](auto d, std::size_t i, auto element) HWY_ATTR { return hn::Mul(element, scale_at(d, i)); },
      to);
}

/// The scalar format that holds the elements of a block once those of 4 bits are bf16.
template <BlockFormat F>
inline constexpr Scalar kStoredElement = traits(F).element_bits == 4    ? Scalar::bf16
                                         : F == BlockFormat::mxfp8_e5m2 ? Scalar::e5m2
                                                                        : Scalar::e4m3;

/// True if the codes of one vector of scales are all at least `least`.
template <class D>
HWY_INLINE bool CodesAreAtLeast(D d, const std::uint8_t* HWY_RESTRICT codes, std::uint8_t least) {
  const auto some = hn::LoadU(d, codes);
  return hn::AllTrue(d, hn::Eq(hn::Max(some, hn::Set(d, least)), some));
}

/// A part of a row, at most kPiece elements.
template <BlockFormat F>
class CodedPiece {
 public:
  static constexpr std::size_t kPiece = 256;
  static constexpr auto kBlock = static_cast<std::size_t>(traits(F).block);
  static constexpr bool kHalves = traits(F).element_bits == 4;

  /// Elements from `begin` on, at most `n`.
  HWY_INLINE CodedPiece(const CodedRow& row, std::size_t begin, std::size_t n)
      : per_element_(row.scale_per_element), begin_(begin), elements_(row.elements + begin) {
    const std::size_t skip = kHalves ? begin % 2 : 0;
    count_ = std::min(n, kPiece - skip);
    if constexpr (kHalves) {
      HalvesToBf16(row.elements + begin / 2, count_ + skip, staged_);
      elements_ = staged_ + 2 * skip;
    }
    const std::size_t first = per_element_ ? begin : begin / kBlock;
    scales_ = row.scales + first;
    scale_count_ = per_element_ ? count_ : (begin + count_ - 1) / kBlock - first + 1;
  }

  std::size_t count() const { return count_; }
  bool per_element() const { return per_element_; }
  const std::uint8_t* elements() const { return elements_; }
  const std::uint8_t* scales() const { return scales_; }
  std::size_t scale_count() const { return scale_count_; }

  /// Calls run(first, end, scale) for the elements of each block, whose scale has this number.
  template <class Run>
  HWY_INLINE void ForEachBlock(const Run& run) const {
    for (std::size_t i = 0, end = 0, scale = 0; i < count_; i = end, ++scale) {
      end = std::min(count_, ((begin_ + i) / kBlock + 1) * kBlock - begin_);
      run(i, end, scale);
    }
  }

  /// True if all codes of scales are at least `least`.
  HWY_INLINE bool ScalesAreAtLeast(std::uint8_t least) const {
    const hn::ScalableTag<std::uint8_t> d;
    bool all = true;
    std::size_t i = 0;
    for (; i + hn::Lanes(d) <= scale_count_; i += hn::Lanes(d))
      all = all && CodesAreAtLeast(d, scales_ + i, least);
    for (; i < scale_count_; ++i) all = all && scales_[i] >= least;
    return all;
  }

 private:
  HWY_ALIGN std::uint8_t staged_[2 * kPiece];
  bool per_element_;
  std::size_t begin_, count_, scale_count_;
  const std::uint8_t *elements_, *scales_;
};

/// The least code of a scale with which bf16 represents all elements of F; 0 if any code will do.
template <BlockFormat F>
constexpr std::uint8_t least_exact_code() {
  if (!traits(F).power_of_two_scale) return 0;
  // bf16 has multiples of 2^-133, the elements are multiples of their smallest subnormal number.
  const int code = 127 - 133 - (traits(F).min_normal_exp - traits(F).mantissa_bits);
  return static_cast<std::uint8_t>(std::max(0, code));
}

/// Writes elements times scales, rounded to bf16.
template <BlockFormat F>
HWY_INLINE void DecodePiece(const CodedPiece<F>& piece, float* HWY_RESTRICT to) {
  constexpr std::size_t kBytes = traits(kStoredElement<F>).bytes;
  HWY_ALIGN float scales[CodedPiece<F>::kPiece + HWY_MAX_BYTES / sizeof(float)];
  DecodeScales<F>(piece.scales(), piece.scale_count(), scales);
  if (piece.per_element()) {
    ScaleElements<kStoredElement<F>>(
        piece.elements(), piece.count(),
        [&](auto d, std::size_t i) HWY_ATTR { return hn::LoadU(d, scales + i); }, to);
  } else {
    piece.ForEachBlock([&](std::size_t first, std::size_t end, std::size_t block) HWY_ATTR {
      const float scale = scales[block];
      ScaleElements<kStoredElement<F>>(
          piece.elements() + first * kBytes, end - first,
          [scale](auto d, std::size_t) HWY_ATTR { return hn::Set(d, scale); }, to + first);
    });
  }
  if constexpr (least_exact_code<F>() > 0) {
    if (!piece.ScalesAreAtLeast(least_exact_code<F>())) RoundRow<float>(to, piece.count(), Scalar::bf16);
  }
}

/// decode_blocks().
template <BlockFormat F>
HWY_INLINE void DecodeBlocks(const CodedRow& row, std::size_t begin, std::size_t n, float* HWY_RESTRICT to) {
  for (std::size_t end = begin + n; begin < end;) {
    const CodedPiece<F> piece(row, begin, end - begin);
    DecodePiece(piece, to);
    begin += piece.count();
    to += piece.count();
  }
}

/// decode_blocks(). Not inlined: there are many formats, and many kernels that decode.
HWY_NOINLINE inline void DecodeRow(const CodedRow& row, std::size_t begin, std::size_t n,
                                   float* HWY_RESTRICT to) {
  WithCodes(row.format, [&](auto f) HWY_ATTR { DecodeBlocks<f()>(row, begin, n, to); });
}

/// Writes coded elements (core/numeric/card_sum.h).
template <BlockFormat F>
HWY_INLINE void DecodeCodedPiece(const CodedPiece<F>& piece, float* HWY_RESTRICT to) {
  constexpr std::size_t kBytes = traits(kStoredElement<F>).bytes;
  const auto code = [](auto d, auto element, auto scale) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    return hn::BitCast(d, hn::Or(hn::BitCast(du, element), scale));
  };
  if (piece.per_element()) {
    ForElements<kStoredElement<F>>(
        piece.elements(), piece.count(),
        [&](auto d, std::size_t i, auto element) HWY_ATTR {
          const hn::RebindToUnsigned<decltype(d)> du;
          const hn::Rebind<std::uint8_t, decltype(d)> d8;
          return code(d, element, hn::PromoteTo(du, LoadCount(d8, piece.scales() + i, piece.count() - i)));
        },
        to);
    return;
  }
  piece.ForEachBlock([&](std::size_t first, std::size_t end, std::size_t block) HWY_ATTR {
    const std::uint32_t scale = piece.scales()[block];
    ForElements<kStoredElement<F>>(
        piece.elements() + first * kBytes, end - first,
        [&](auto d, std::size_t, auto element)
            HWY_ATTR { return code(d, element, hn::Set(hn::RebindToUnsigned<decltype(d)>(), scale)); },
        to + first);
  });
}

/// Writes elements [begin, begin + n) of a row as coded elements. Not inlined: there are many formats.
HWY_NOINLINE inline void DecodeCodedRow(const CodedRow& row, std::size_t begin, std::size_t n,
                                        float* HWY_RESTRICT to) {
  WithCodes(row.format, [&](auto f) HWY_ATTR {
    for (std::size_t at = begin, end = begin + n; at < end;) {
      const CodedPiece<f()> piece(row, at, end - at);
      DecodeCodedPiece(piece, to + (at - begin));
      at += piece.count();
    }
  });
}

// ---- To bf16

/// Returns the bf16 values, as bits, of a vector of elements that EncodeRow() writes.
template <BlockFormat F, class D>
HWY_INLINE hn::Vec<D> ElementsAsBf16(D d, const std::uint8_t* HWY_RESTRICT from, std::size_t count) {
  if constexpr (kStoredElement<F> == Scalar::bf16) {
    return LoadCount(d, reinterpret_cast<const std::uint16_t*>(from), count);
  } else {
    constexpr BlockTraits kTraits = traits(F);
    constexpr int kMantissa = kTraits.mantissa_bits, kBias = 1 - kTraits.min_normal_exp;
    constexpr auto kBits = [](float x) {
      return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16U);
    };
    constexpr float kStep = PowerOfTwo<float>(kTraits.min_normal_exp - kMantissa);
    HWY_ALIGN static constexpr std::uint16_t kSubnormal[8] = {
        kBits(0),         kBits(kStep),     kBits(2 * kStep), kBits(3 * kStep),
        kBits(4 * kStep), kBits(5 * kStep), kBits(6 * kStep), kBits(7 * kStep)};
    const hn::Rebind<std::uint8_t, D> d8;
    const auto code = hn::PromoteTo(d, LoadCount(d8, from, count));
    const auto sign = hn::ShiftLeft<8>(hn::And(code, hn::Set(d, std::uint16_t{0x80})));
    const auto magnitude = hn::And(code, hn::Set(d, std::uint16_t{0x7f}));
    const auto normal = hn::Add(hn::ShiftLeft<7 - kMantissa>(magnitude),
                                hn::Set(d, static_cast<std::uint16_t>((127 - kBias) << 7)));
    // The bytes of entry i of the table are 2 i and 2 i + 1.
    const auto entry = hn::And(magnitude, hn::Set(d, std::uint16_t{7}));
    const auto bytes =
        hn::Add(hn::Or(hn::ShiftLeft<1>(entry), hn::ShiftLeft<9>(entry)), hn::Set(d, std::uint16_t{0x0100}));
    const auto subnormal = hn::TableLookupBytes(hn::LoadDup128(d, kSubnormal), bytes);
    const auto is_subnormal = hn::Lt(magnitude, hn::Set(d, static_cast<std::uint16_t>(1 << kMantissa)));
    return hn::Or(sign, hn::IfThenElse(is_subnormal, subnormal, normal));
  }
}

/// Writes elements times scales, powers of two, as bf16. Returns false if one of them is not a number or not
/// normal; then what was written is meaningless.
template <BlockFormat F>
HWY_INLINE bool DecodeNormalPiece(const CodedPiece<F>& piece, std::uint16_t* HWY_RESTRICT to) {
  const hn::ScalableTag<std::uint16_t> d;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  constexpr std::size_t kBytes = traits(kStoredElement<F>).bytes;
  auto wrong = hn::Zero(d);  // a lane that is not zero
  const auto put = [&](std::size_t i, std::size_t count, hn::Vec<decltype(d)> scale) HWY_ATTR {
    const auto element = ElementsAsBf16<F>(d, piece.elements() + i * kBytes, count);
    const auto magnitude = hn::And(element, hn::Set(d, std::uint16_t{0x7fff}));
    const auto is_zero = hn::Eq(magnitude, hn::Zero(d));
    // The biased exponent of the product, less the least one.
    const auto exponent =
        hn::Sub(hn::Add(hn::ShiftRight<7>(magnitude), scale), hn::Set(d, std::uint16_t{127 + 1}));
    const auto beyond = hn::SaturatedSub(exponent, hn::Set(d, std::uint16_t{254 - 1}));
    const auto nan = hn::SaturatedSub(scale, hn::Set(d, std::uint16_t{254}));
    wrong = hn::Or(wrong, hn::Or(nan, hn::IfThenZeroElse(is_zero, beyond)));
    const auto power = hn::ShiftLeft<7>(hn::Sub(scale, hn::Set(d, std::uint16_t{127})));
    StoreCount(hn::Add(element, hn::IfThenZeroElse(is_zero, power)), d, to + i, count);
  };
  if (piece.per_element()) {
    for (std::size_t i = 0; i < piece.count(); i += hn::Lanes(d)) {
      const std::size_t count = std::min(hn::Lanes(d), piece.count() - i);
      put(i, count, hn::PromoteTo(d, LoadCount(d8, piece.scales() + i, count)));
    }
  } else {
    piece.ForEachBlock([&](std::size_t first, std::size_t end, std::size_t block) HWY_ATTR {
      const auto scale = hn::Set(d, std::uint16_t{piece.scales()[block]});
      for (std::size_t i = first; i < end; i += hn::Lanes(d)) put(i, std::min(hn::Lanes(d), end - i), scale);
    });
  }
  return hn::AllTrue(d, hn::Eq(wrong, hn::Zero(d)));
}

/// decode_blocks(), to bf16.
template <BlockFormat F>
HWY_INLINE void DecodeBlocksAsBf16(const CodedRow& row, std::size_t begin, std::size_t n,
                                   std::uint16_t* HWY_RESTRICT to) {
  for (std::size_t end = begin + n; begin < end;) {
    const CodedPiece<F> piece(row, begin, end - begin);
    if (!traits(F).power_of_two_scale || !DecodeNormalPiece(piece, to)) {
      HWY_ALIGN float wide[CodedPiece<F>::kPiece];
      DecodePiece(piece, wide);
      StoreRowOf<Scalar::bf16>(wide, piece.count(), reinterpret_cast<std::uint8_t*>(to));
    }
    begin += piece.count();
    to += piece.count();
  }
}

/// decode_blocks(), to bf16. Not inlined: there are many formats.
HWY_NOINLINE inline void DecodeRowAsBf16(const CodedRow& row, std::size_t begin, std::size_t n,
                                         std::uint16_t* HWY_RESTRICT to) {
  WithCodes(row.format, [&](auto f) HWY_ATTR { DecodeBlocksAsBf16<f()>(row, begin, n, to); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_DECODE_BLOCKS_INL_H_
