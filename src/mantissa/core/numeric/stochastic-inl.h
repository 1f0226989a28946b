// Rounds rows stochastically, with random bits that depend only on the stream and the element's index, and
// toward zero, which is stochastic rounding with a random number that never rounds up. Included once per
// instruction set (Highway's -inl.h idiom).
#if defined(MANTISSA_NUMERIC_STOCHASTIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_NUMERIC_STOCHASTIC_INL_H_
#undef MANTISSA_NUMERIC_STOCHASTIC_INL_H_
#else
#define MANTISSA_NUMERIC_STOCHASTIC_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mantissa/core/numeric/convert-inl.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/core/numeric/round.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Computes the words of `blocks` blocks of the stream from block `first` on, two 32-bit words per element of
/// `words`. `words` needs room for 2 × (blocks rounded up to a multiple of 16) elements.
HWY_INLINE void RandomBlocks(const RandomStream& stream, std::uint64_t first, std::size_t blocks,
                             std::uint64_t* HWY_RESTRICT words) {
  // Each 64-bit lane computes one block and holds each of its words in a lower half: the multiply reads only
  // that half and gives both halves of a product at once. The upper halves are cleared only at the end. Two
  // vectors run together because each round depends on the one before.
  const hn::CappedTag<std::uint64_t, 8> d;
  const hn::Repartition<std::uint32_t, decltype(d)> d32;
  using V = hn::Vec<decltype(d)>;
  const V low_mask = hn::Set(d, 0xffffffffu);
  const auto times = [&](V x, std::uint32_t by) HWY_ATTR {
    return hn::MulEven(hn::BitCast(d32, x), hn::BitCast(d32, hn::Set(d, by)));
  };
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t at = 0; at < blocks; at += 2 * lanes) {
    V a0 = hn::Iota(d, first + at), b0 = hn::Iota(d, first + at + lanes);
    V a1 = hn::ShiftRight<32>(a0), b1 = hn::ShiftRight<32>(b0);
    V a2 = hn::Set(d, stream.counter_high()[0]), b2 = a2;
    V a3 = hn::Set(d, stream.counter_high()[1]), b3 = a3;
    PhiloxKey key = stream.key();
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const V a_product0 = times(a0, kPhiloxMultiply0), b_product0 = times(b0, kPhiloxMultiply0);
      const V a_product1 = times(a2, kPhiloxMultiply1), b_product1 = times(b2, kPhiloxMultiply1);
      const V key0 = hn::Set(d, key[0]), key1 = hn::Set(d, key[1]);
      a0 = hn::Xor3(hn::ShiftRight<32>(a_product1), a1, key0);
      b0 = hn::Xor3(hn::ShiftRight<32>(b_product1), b1, key0);
      a2 = hn::Xor3(hn::ShiftRight<32>(a_product0), a3, key1);
      b2 = hn::Xor3(hn::ShiftRight<32>(b_product0), b3, key1);
      a1 = a_product1, b1 = b_product1;
      a3 = a_product0, b3 = b_product0;
      key[0] += kPhiloxAdd0;
      key[1] += kPhiloxAdd1;
    }
    const auto joined = [&](V low, V high)
                            HWY_ATTR { return hn::Or(hn::And(low, low_mask), hn::ShiftLeft<32>(high)); };
    hn::StoreInterleaved2(joined(a0, a1), joined(a2, a3), d, words + 2 * at);
    hn::StoreInterleaved2(joined(b0, b1), joined(b2, b3), d, words + 2 * (at + lanes));
  }
}

/// Writes the random bits of elements [index, index + n) of the stream.
HWY_INLINE void RandomRow(const RandomStream& stream, std::uint64_t index, std::size_t n,
                          std::uint32_t* HWY_RESTRICT to) {
  constexpr std::size_t kChunkBlocks = 64;
  HWY_ALIGN std::uint64_t words[2 * kChunkBlocks];
  for (std::size_t done = 0; done < n;) {
    const std::uint64_t at = index + done;
    const std::size_t skip = static_cast<std::size_t>(at % 4);
    const std::size_t count = std::min(n - done, 4 * kChunkBlocks - skip);
    RandomBlocks(stream, at / 4, (skip + count + 3) / 4, words);
    std::memcpy(to + done, reinterpret_cast<const std::uint32_t*>(words) + skip,
                count * sizeof(std::uint32_t));
    done += count;
  }
}

/// Rounds magnitudes below the smallest normal of S to its grid: to the multiple of the smallest subnormal
/// below, or to the next one if the first 32 bits of the fraction exceed `random`. Exact, because the
/// multiple is below 2^24.
template <Scalar S, F32Lanes D>
HWY_INLINE hn::Vec<D> RoundSubnormal(D d, hn::Vec<D> magnitude, hn::Vec<hn::RebindToUnsigned<D>> random) {
  const hn::RebindToUnsigned<D> du;
  constexpr int kPlace = traits(S).min_normal_exp - traits(S).mantissa_bits;
  const auto scaled = hn::Mul(magnitude, hn::Set(d, PowerOfTwo<float>(-kPlace)));
  const auto multiple = hn::Floor(scaled);
  const auto places = hn::Mul(hn::Sub(scaled, multiple), hn::Set(d, 0x1p16f));
  const auto high = hn::Floor(places);
  const auto low = hn::Floor(hn::Mul(hn::Sub(places, high), hn::Set(d, 0x1p16f)));
  const hn::RebindToSigned<D> di;
  const auto fraction = hn::Or(hn::ShiftLeft<16>(hn::BitCast(du, hn::ConvertTo(di, high))),
                               hn::BitCast(du, hn::ConvertTo(di, low)));
  const auto up = hn::IfThenElseZero(hn::RebindMask(d, hn::Gt(fraction, random)), hn::Set(d, 1.0f));
  return hn::Mul(hn::Add(multiple, up), hn::Set(d, PowerOfTwo<float>(kPlace)));
}

/// Rounds f32 lanes to the grid of S: away from zero if the first 32 dropped bits exceed `random`. Beyond the
/// largest finite value the exponents continue as if unbounded.
template <Scalar S, F32Lanes D>
HWY_INLINE hn::Vec<D> RoundStochastic(D d, hn::Vec<D> v, hn::Vec<hn::RebindToUnsigned<D>> random) {
  const hn::RebindToUnsigned<D> du;
  constexpr int kDrop = traits(Scalar::f32).mantissa_bits - traits(S).mantissa_bits;
  constexpr std::uint32_t kDropped = (std::uint32_t{1} << kDrop) - 1;
  const auto bits = hn::BitCast(du, v);
  // The sum carries into the last kept place exactly when the dropped bits exceed the leading bits of
  // `random`.
  const auto threshold = hn::Sub(hn::Set(du, kDropped), hn::ShiftRight<32 - kDrop>(random));
  const auto carried = hn::Add(bits, threshold);
  auto rounded = hn::BitCast(d, hn::And(carried, hn::Set(du, ~kDropped)));
  if constexpr (traits(S).min_normal_exp != traits(Scalar::f32).min_normal_exp) {
    const auto magnitude = hn::Abs(v);
    const auto is_subnormal = hn::Lt(magnitude, hn::Set(d, PowerOfTwo<float>(traits(S).min_normal_exp)));
    const auto small = hn::IfThenElseZero(is_subnormal, magnitude);
    rounded = hn::IfThenElse(is_subnormal, hn::CopySign(RoundSubnormal<S>(d, small, random), v), rounded);
  }
  return hn::IfThenElse(hn::IsNaN(v), RoundToGrid<S>(d, v), rounded);
}

/// Writes the codes of `n` values of T, one at a time.
template <class T>
HWY_INLINE void StoreStochasticByOne(const T* HWY_RESTRICT src, std::size_t n, std::uint8_t* HWY_RESTRICT dst,
                                     Scalar type, const std::uint32_t* HWY_RESTRICT random) {
  const std::size_t bytes = bytes_of(type);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t code = encode(src[i], type, {Rounding::stochastic}, random[i]);
    std::memcpy(dst + i * bytes, &code, bytes);  // assumes little-endian, as every supported target is
  }
}

/// Rounds f32 lanes to the grid of S, toward zero. Finite values stay finite.
template <Scalar S, F32Lanes D>
HWY_INLINE hn::Vec<D> RoundTowardZero(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto rounded = RoundStochastic<S>(d, v, hn::Set(du, ~std::uint32_t{0}));
  const auto most = hn::CopySign(hn::Set(d, static_cast<float>(traits(S).max_finite)), v);
  const auto beyond = hn::And(hn::Gt(hn::Abs(rounded), hn::Abs(most)), hn::IsFinite(v));
  return hn::IfThenElse(beyond, most, rounded);
}

template <Scalar S>
HWY_INLINE void StoreTowardZeroLanes(const float* HWY_RESTRICT src, std::size_t n,
                                     std::uint8_t* HWY_RESTRICT dst) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    StoreGridLanes<S>(d, RoundTowardZero<S>(d, hn::LoadU(d, src + i)), dst + i * bytes_of(S));
  for (; i < n; ++i) {
    const std::uint64_t code = encode(src[i], S, {Rounding::toward_zero});
    std::memcpy(dst + i * bytes_of(S), &code, bytes_of(S));
  }
}

template <Scalar S>
HWY_INLINE void StoreStochasticLanes(const float* HWY_RESTRICT src, std::size_t n,
                                     std::uint8_t* HWY_RESTRICT dst,
                                     const std::uint32_t* HWY_RESTRICT random) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto rounded = RoundStochastic<S>(d, hn::LoadU(d, src + i), hn::LoadU(du, random + i));
    StoreGridLanes<S>(d, rounded, dst + i * bytes_of(S));
  }
  StoreStochasticByOne(src + i, n - i, dst + i * bytes_of(S), S, random + i);
}

HWY_INLINE void StoreStochasticPart(const float* HWY_RESTRICT src, std::size_t n,
                                    std::uint8_t* HWY_RESTRICT dst, Scalar type,
                                    const std::uint32_t* HWY_RESTRICT random) {
  switch (type) {
    case Scalar::f64:
    case Scalar::f32:
      return StoreStochasticByOne(src, n, dst, type, random);
    case Scalar::tf32:
      return StoreStochasticLanes<Scalar::tf32>(src, n, dst, random);
    case Scalar::bf16:
      return StoreStochasticLanes<Scalar::bf16>(src, n, dst, random);
    case Scalar::f16:
      return StoreStochasticLanes<Scalar::f16>(src, n, dst, random);
    case Scalar::e5m2:
      return StoreStochasticLanes<Scalar::e5m2>(src, n, dst, random);
    case Scalar::e4m3:
      return StoreStochasticLanes<Scalar::e4m3>(src, n, dst, random);
  }
}

HWY_INLINE void StoreStochasticPart(const double* HWY_RESTRICT src, std::size_t n,
                                    std::uint8_t* HWY_RESTRICT dst, Scalar type,
                                    const std::uint32_t* HWY_RESTRICT random) {
  StoreStochasticByOne(src, n, dst, type, random);
}

/// Rounds src[0, n) stochastically and writes it to elements [offset, offset + n) of `dst`, stored as `type`:
/// encode(src[i], type, stochastic, stream.bits(index + i)). `index` is the index of src[0] in the
/// parameter's canonical layout.
template <class T>
HWY_INLINE void StoreRowStochastic(const T* HWY_RESTRICT src, std::size_t n, void* dst, Scalar type,
                                   std::size_t offset, const RandomStream& stream, std::uint64_t index) {
  constexpr std::size_t kChunk = 256;
  HWY_ALIGN std::uint32_t random[kChunk];
  std::uint8_t* to = static_cast<std::uint8_t*>(dst) + offset * bytes_of(type);
  for (std::size_t done = 0; done < n; done += kChunk) {
    const std::size_t count = std::min(n - done, kChunk);
    RandomRow(stream, index + done, count, random);
    StoreStochasticPart(src + done, count, to + done * bytes_of(type), type, random);
  }
}

/// Rounds src[0, n) toward zero and writes it to the same elements: encode(src[i], type, toward_zero).
HWY_INLINE void StoreRowTowardZero(const float* HWY_RESTRICT src, std::size_t n, void* dst, Scalar type,
                                   std::size_t offset) {
  std::uint8_t* to = static_cast<std::uint8_t*>(dst) + offset * bytes_of(type);
  switch (type) {
    case Scalar::f64:
    case Scalar::f32:
      return StoreRow(src, n, dst, type, offset);
    case Scalar::tf32:
      return StoreTowardZeroLanes<Scalar::tf32>(src, n, to);
    case Scalar::bf16:
      return StoreTowardZeroLanes<Scalar::bf16>(src, n, to);
    case Scalar::f16:
      return StoreTowardZeroLanes<Scalar::f16>(src, n, to);
    case Scalar::e5m2:
      return StoreTowardZeroLanes<Scalar::e5m2>(src, n, to);
    case Scalar::e4m3:
      return StoreTowardZeroLanes<Scalar::e4m3>(src, n, to);
  }
}

/// Rounds src[0, n) by `rounding` and writes it to the same elements. `stream` and `index` apply to
/// stochastic rounding.
HWY_INLINE void StoreRowRounded(const float* HWY_RESTRICT src, std::size_t n, void* dst, Scalar type,
                                std::size_t offset, Rounding rounding, const RandomStream& stream,
                                std::uint64_t index) {
  switch (rounding) {
    case Rounding::nearest:
      return StoreRow(src, n, dst, type, offset);
    case Rounding::toward_zero:
      return StoreRowTowardZero(src, n, dst, type, offset);
    case Rounding::stochastic:
      return StoreRowStochastic(src, n, dst, type, offset, stream, index);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_STOCHASTIC_INL_H_
