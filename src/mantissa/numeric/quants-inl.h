// Decodes rows of quantised blocks (numeric/quants.h). Included once per instruction set (Highway's -inl.h
// idiom).
#if defined(MANTISSA_NUMERIC_QUANTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_QUANTS_INL_H_
#undef MANTISSA_NUMERIC_QUANTS_INL_H_
#else
#define MANTISSA_NUMERIC_QUANTS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "mantissa/numeric/quants.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Calls call(f) with the format as a constant, f = std::integral_constant<QuantFormat, …>.
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

/// Writes the values of one block.
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

/// dequantize().
template <QuantFormat F>
HWY_INLINE void DequantizeBlocks(const std::uint8_t* HWY_RESTRICT blocks, std::size_t begin, std::size_t n,
                                 float* HWY_RESTRICT to) {
  constexpr std::size_t kBytes = traits(F).bytes;
  blocks += begin / kQuantBlock * kBytes;
  std::size_t skip = begin % kQuantBlock;
  for (; n > 0; blocks += kBytes) {
    const std::size_t count = std::min(n, kQuantBlock - skip);
    if (count == kQuantBlock) {
      DequantizeBlock<F>(blocks, to);
    } else {
      HWY_ALIGN float whole[kQuantBlock];
      DequantizeBlock<F>(blocks, whole);
      std::memcpy(to, whole + skip, count * sizeof(float));
    }
    skip = 0;
    to += count;
    n -= count;
  }
}

/// dequantize(). Not inlined: there are many formats.
HWY_NOINLINE inline void DequantizeRow(QuantFormat format, const std::uint8_t* HWY_RESTRICT blocks,
                                       std::size_t begin, std::size_t n, float* HWY_RESTRICT to) {
  WithFormat(format, [&](auto f) HWY_ATTR { DequantizeBlocks<f()>(blocks, begin, n, to); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_QUANTS_INL_H_
