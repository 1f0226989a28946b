// Rows rounded stochastically, with random bits that depend on the stream and the element's index alone.
// Included once per instruction set (Highway's -inl.h idiom).
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
#include <type_traits>

#include "mantissa/numeric/convert-inl.h"
#include "mantissa/numeric/philox.h"
#include "mantissa/numeric/round.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The words of `blocks` blocks of the stream from block `first` on; `words` has room for 4 × (blocks rounded
/// up to 8).
HWY_INLINE void RandomBlocks(const RandomStream& stream, std::uint64_t first, std::size_t blocks,
                             std::uint64_t* HWY_RESTRICT words) {
  // One block per 64-bit lane, each of its words in the lane's lower half: the multiply gives both halves of
  // a product at once.
  const hn::CappedTag<std::uint64_t, 8> d;
  const hn::Repartition<std::uint32_t, decltype(d)> d32;
  using V = hn::Vec<decltype(d)>;
  const V low_mask = hn::Set(d, 0xffffffffu);
  const auto times = [&](V x, std::uint32_t by) HWY_ATTR {
    return hn::MulEven(hn::BitCast(d32, x), hn::BitCast(d32, hn::Set(d, by)));
  };
  for (std::size_t at = 0; at < blocks; at += hn::Lanes(d)) {
    const V number = hn::Iota(d, first + at);
    V c0 = hn::And(number, low_mask);
    V c1 = hn::ShiftRight<32>(number);
    V c2 = hn::Set(d, stream.counter_high()[0]);
    V c3 = hn::Set(d, stream.counter_high()[1]);
    PhiloxKey key = stream.key();
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const V product0 = times(c0, kPhiloxMultiply0);
      const V product1 = times(c2, kPhiloxMultiply1);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), c1), hn::Set(d, key[0]));
      c1 = hn::And(product1, low_mask);
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), c3), hn::Set(d, key[1]));
      c3 = hn::And(product0, low_mask);
      key[0] += kPhiloxAdd0;
      key[1] += kPhiloxAdd1;
    }
    const V first_half = hn::Or(c0, hn::ShiftLeft<32>(c1));
    const V second_half = hn::Or(c2, hn::ShiftLeft<32>(c3));
    hn::StoreInterleaved2(first_half, second_half, d, words + 2 * at);
  }
}

/// Lanes of f32 on the grid of bf16 or tf32: away from zero where the dropped bits exceed the leading bits of
/// `random`.
template <Scalar S, F32Lanes D>
HWY_INLINE hn::Vec<D> RoundStochastic(D d, hn::Vec<D> v, hn::Vec<hn::RebindToUnsigned<D>> random) {
  const hn::RebindToUnsigned<D> du;
  static_assert(traits(S).min_normal_exp == traits(Scalar::f32).min_normal_exp);
  constexpr int kDrop = traits(Scalar::f32).mantissa_bits - traits(S).mantissa_bits;
  constexpr std::uint32_t kDropped = (std::uint32_t{1} << kDrop) - 1;
  const auto bits = hn::BitCast(du, v);
  // The sum carries into the last kept place exactly where dropped > random's leading bits.
  const auto threshold = hn::Sub(hn::Set(du, kDropped), hn::ShiftRight<32 - kDrop>(random));
  const auto carried = hn::Add(bits, threshold);
  const auto rounded = hn::BitCast(d, hn::And(carried, hn::Set(du, ~kDropped)));
  return hn::IfThenElse(hn::IsNaN(v), RoundToGrid<S>(d, v), rounded);
}

/// The codes of `n` values of T, one by one.
template <class T>
HWY_INLINE void StoreStochasticByOne(const T* HWY_RESTRICT src, std::size_t n, std::uint8_t* HWY_RESTRICT dst,
                                     Scalar type, const std::uint32_t* HWY_RESTRICT random) {
  const std::size_t bytes = bytes_of(type);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t code = encode(src[i], type, {Rounding::stochastic}, random[i]);
    std::memcpy(dst + i * bytes, &code, bytes);  // little-endian, as every target here is
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

/// Elements [offset, offset + n) of `dst`, stored as `type`, = src[0, n) rounded stochastically:
/// encode(src[i], type, stochastic, stream.bits(index + i)). `index` is the index of src[0] in the
/// parameter's canonical layout.
template <class T>
HWY_INLINE void StoreRowStochastic(const T* HWY_RESTRICT src, std::size_t n, void* dst, Scalar type,
                                   std::size_t offset, const RandomStream& stream, std::uint64_t index) {
  constexpr std::size_t kChunkBlocks = 64;
  HWY_ALIGN std::uint64_t words[2 * kChunkBlocks];
  HWY_ALIGN std::uint32_t random[4 * kChunkBlocks];
  std::uint8_t* to = static_cast<std::uint8_t*>(dst) + offset * bytes_of(type);
  for (std::size_t done = 0; done < n;) {
    const std::uint64_t at = index + done;
    const std::size_t skip = static_cast<std::size_t>(at % 4);
    const std::size_t count = std::min(n - done, 4 * kChunkBlocks - skip);
    RandomBlocks(stream, at / 4, (skip + count + 3) / 4, words);
    std::memcpy(random, words, sizeof(random));
    std::uint8_t* chunk = to + done * bytes_of(type);
    if (std::is_same_v<T, float> && type == Scalar::bf16) {
      StoreStochasticLanes<Scalar::bf16>(reinterpret_cast<const float*>(src + done), count, chunk,
                                         random + skip);
    } else if (std::is_same_v<T, float> && type == Scalar::tf32) {
      StoreStochasticLanes<Scalar::tf32>(reinterpret_cast<const float*>(src + done), count, chunk,
                                         random + skip);
    } else {
      StoreStochasticByOne(src + done, count, chunk, type, random + skip);
    }
    done += count;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_NUMERIC_STOCHASTIC_INL_H_
