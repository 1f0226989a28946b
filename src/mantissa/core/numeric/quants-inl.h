// Decodes rows of quantized blocks (core/numeric/quants.h). Included once per instruction set (Highway's
// -inl.h idiom).
#if defined(MANTISSA_NUMERIC_QUANTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_QUANTS_INL_H_
#undef MANTISSA_NUMERIC_QUANTS_INL_H_
#else
#define MANTISSA_NUMERIC_QUANTS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "mantissa/core/numeric/quants.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Calls call(f) with the format as a constant, f = std::integral_constant<QuantFormat, …>. nf4 stands for
/// nf4_double too, as quant_scale() reads the scales.
template <class Call>
HWY_INLINE void WithFormat(QuantFormat format, const Call& call) {
  switch (format) {
    case QuantFormat::q4_0:
      return call(std::integral_constant<QuantFormat, QuantFormat::q4_0>());
    case QuantFormat::q4_1:
      return call(std::integral_constant<QuantFormat, QuantFormat::q4_1>());
    case QuantFormat::q5_0:
      return call(std::integral_constant<QuantFormat, QuantFormat::q5_0>());
    case QuantFormat::q5_1:
      return call(std::integral_constant<QuantFormat, QuantFormat::q5_1>());
    case QuantFormat::q8_0:
      return call(std::integral_constant<QuantFormat, QuantFormat::q8_0>());
    case QuantFormat::int8:
      return call(std::integral_constant<QuantFormat, QuantFormat::int8>());
    case QuantFormat::nf4:
    case QuantFormat::nf4_double:
      return call(std::integral_constant<QuantFormat, QuantFormat::nf4>());
  }
}

/// Returns the f16 number at `from` in all lanes.
template <class D>
HWY_INLINE hn::Vec<D> SetHalf(D d, const std::uint8_t* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  const hn::Rebind<std::uint16_t, D> du16;
  const hn::Rebind<hwy::float16_t, D> dh;
  return hn::PromoteTo(d, hn::BitCast(dh, hn::Set(du16, bits)));
}

/// Writes the values of one block with its scale.
template <QuantFormat F>
HWY_INLINE void DequantizeBlock(const std::uint8_t* HWY_RESTRICT block, float* HWY_RESTRICT to) {
  constexpr QuantTraits kTraits = traits(F);
  constexpr std::size_t kHalf = kQuantBlock / 2;
  const hn::CappedTag<float, kHalf> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto scale = SetHalf(d, block);
  const auto minimum = kTraits.minimum ? SetHalf(d, block + 2) : hn::Zero(d);
  const auto put = [&](hn::Vec<decltype(di)> code, std::size_t i) HWY_ATTR {
    if constexpr (kTraits.zero != 0) code = hn::Sub(code, hn::Set(di, kTraits.zero));
    const auto x = hn::ConvertTo(d, code);
    hn::StoreU(kTraits.minimum ? hn::MulAdd(x, scale, minimum) : hn::Mul(x, scale), d, to + i);
  };
  if constexpr (kTraits.code_bits == 8) {
    const hn::Rebind<std::int8_t, decltype(d)> di8;
    const auto* codes = reinterpret_cast<const std::int8_t*>(block + kTraits.codes);
    for (std::size_t i = 0; i < kQuantBlock; i += hn::Lanes(d))
      put(hn::PromoteTo(di, hn::LoadU(di8, codes + i)), i);
  } else {
    const hn::Rebind<std::uint8_t, decltype(d)> du8;
    const hn::RebindToUnsigned<decltype(d)> du;
    std::uint32_t fifth = 0;
    if constexpr (kTraits.code_bits == 5) std::memcpy(&fifth, block + kTraits.codes - 4, sizeof fifth);
    for (std::size_t i = 0; i < kHalf; i += hn::Lanes(d)) {
      const auto two = hn::PromoteTo(du, hn::LoadU(du8, block + kTraits.codes + i));
      auto low = hn::And(two, hn::Set(du, 15U)), high = hn::ShiftRight<4>(two);
      if constexpr (kTraits.code_bits == 5) {
        const auto bit = hn::Iota(du, static_cast<std::uint32_t>(i)), all = hn::Set(du, fifth);
        const auto one = hn::Set(du, 1U);
        low = hn::Or(low, hn::ShiftLeft<4>(hn::And(hn::Shr(all, bit), one)));
        high = hn::Or(high, hn::ShiftLeft<4>(
                                hn::And(hn::Shr(all, hn::Add(bit, hn::Set(du, std::uint32_t{kHalf}))), one)));
      }
      put(hn::BitCast(di, low), i);
      put(hn::BitCast(di, high), i + kHalf);
    }
  }
}

/// Returns the numbers of the codes of nf4 in the lanes, which are below 16.
template <class D>
HWY_INLINE hn::Vec<D> NormalFloats(D d, hn::Vec<hn::RebindToUnsigned<D>> codes) {
  HWY_ALIGN static constexpr std::array<float, 16> kNumbers = kNormalFloat4;
  if constexpr (hn::MaxLanes(D()) == 16) {
    return hn::TableLookupLanes(hn::Load(d, kNumbers.data()), hn::IndicesFromVec(d, codes));
  } else if constexpr (hn::MaxLanes(D()) == 8) {
    const hn::RebindToUnsigned<D> du;
    const auto index = hn::IndicesFromVec(d, hn::And(codes, hn::Set(du, 7U)));
    const auto lower = hn::TableLookupLanes(hn::Load(d, kNumbers.data()), index);
    const auto upper = hn::TableLookupLanes(hn::Load(d, kNumbers.data() + 8), index);
    return hn::IfThenElse(hn::RebindMask(d, hn::Gt(codes, hn::Set(du, 7U))), upper, lower);
  } else {
    return hn::GatherIndex(d, kNumbers.data(), hn::BitCast(hn::RebindToSigned<D>(), codes));
  }
}

/// Writes the values of 32 codes of nf4.
HWY_INLINE void DequantizeNormalFloats(const std::uint8_t* HWY_RESTRICT codes, float scale,
                                       float* HWY_RESTRICT to) {
  const hn::CappedTag<float, kQuantBlock / 2> d;
  const hn::Rebind<std::uint8_t, decltype(d)> du8;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::FixedTag<std::uint8_t, kQuantBlock / 2> all;
  HWY_ALIGN std::uint8_t apart[kQuantBlock];  // a code each
  const auto two = hn::LoadU(all, codes);
  const auto even = hn::ShiftRight<4>(two), odd = hn::And(two, hn::Set(all, 15));
  hn::Store(hn::InterleaveLower(all, even, odd), all, apart);
  hn::Store(hn::InterleaveUpper(all, even, odd), all, apart + kQuantBlock / 2);
  const auto scales = hn::Set(d, scale);
  for (std::size_t i = 0; i < kQuantBlock; i += hn::Lanes(d)) {
    const auto code = hn::PromoteTo(du, hn::LoadU(du8, apart + i));
    hn::StoreU(hn::Mul(NormalFloats(d, code), scales), d, to + i);
  }
}

/// Calls whole(block, to) for the blocks of elements [begin, begin + n), the first of which is block `begin`
/// / 32, and copies the elements of the first and the last one.
template <class Whole>
HWY_INLINE void ForBlocks(std::size_t begin, std::size_t n, float* HWY_RESTRICT to, const Whole& whole) {
  std::size_t skip = begin % kQuantBlock;
  for (std::size_t block = begin / kQuantBlock; n > 0; ++block) {
    const std::size_t count = std::min(n, kQuantBlock - skip);
    if (count == kQuantBlock) {
      whole(block, to);
    } else {
      HWY_ALIGN float values[kQuantBlock];
      whole(block, values);
      std::memcpy(to, values + skip, count * sizeof(float));
    }
    skip = 0;
    to += count;
    n -= count;
  }
}

/// dequantize() for int8.
HWY_INLINE void DequantizeBytes(const QuantRows& m, std::size_t row, std::size_t begin, std::size_t n,
                                float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::int8_t, decltype(d)> di8;
  const auto* codes = reinterpret_cast<const std::int8_t*>(m.blocks) + row * m.width + begin;
  const float scale = quant_scale(m, row, begin);
  const auto scales = hn::Set(d, scale);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto code = hn::PromoteTo(di, hn::LoadU(di8, codes + i));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, code), scales), d, to + i);
  }
  for (; i < n; ++i) to[i] = static_cast<float>(codes[i]) * scale;
}

/// dequantize(). Not inlined: there are many formats.
HWY_NOINLINE inline void DequantizeRow(const QuantRows& m, std::size_t row, std::size_t begin, std::size_t n,
                                       float* HWY_RESTRICT to) {
  WithFormat(m.format, [&](auto f) HWY_ATTR {
    constexpr QuantFormat kFormat = f();
    const std::uint8_t* first = m.blocks + row * quant_bytes(kFormat, m.width);
    if constexpr (kFormat == QuantFormat::int8) {
      DequantizeBytes(m, row, begin, n, to);
    } else if constexpr (kFormat == QuantFormat::nf4) {
      ForBlocks(begin, n, to, [&](std::size_t block, float* HWY_RESTRICT values) HWY_ATTR {
        DequantizeNormalFloats(first + block * (kQuantBlock / 2), quant_scale(m, row, block * kQuantBlock),
                               values);
      });
    } else {
      ForBlocks(begin, n, to, [&](std::size_t block, float* HWY_RESTRICT values) HWY_ATTR {
        DequantizeBlock<kFormat>(first + block * traits(kFormat).bytes, values);
      });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_QUANTS_INL_H_
