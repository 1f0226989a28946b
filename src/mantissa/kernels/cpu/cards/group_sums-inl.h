// Adds groups of products to accumulators as cards do (core/numeric/card_sum.h), for several rows and one
// vector of columns at a time. Products of factors with up to 12 significant bits are exact in f32. Aligned
// to the largest exponent they are integers, whose sums are exact in 32 or 64 bits. So every instruction set
// gives the same bits.
#if defined(MANTISSA_KERNELS_CPU_CARDS_GROUP_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_CARDS_GROUP_SUMS_INL_H_
#undef MANTISSA_KERNELS_CPU_CARDS_GROUP_SUMS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_CARDS_GROUP_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/card_sum.h"
#include "mantissa/core/numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace card_sums {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Ints = hn::Rebind<std::int32_t, Floats>;
using V = hn::Vec<Floats>;
using I = hn::Vec<Ints>;
using HalfInts = hn::Half<Ints>;
using Doubles = hn::Rebind<double, HalfInts>;
using Longs = hn::Rebind<std::int64_t, HalfInts>;
using W = hn::Vec<Doubles>;
inline constexpr std::size_t kLanes = HWY_LANES(float);

/// Values of a whole vector in double.
struct Wide {
  W low, high;
};

/// The largest exponents of groups for which f32 products, aligned by a factor of f32, are exact integers.
inline constexpr int kLowest = -100, kHighest = 126;
/// The exponent of a factor that is not finite: no sum with it is at most kHighest.
inline constexpr int kNotFinite = 4096;

/// The exponents of factors or accumulators of a format whose smallest normal number is 2^least.
HWY_INLINE I Exponents(V v, int least) {
  const Ints d;
  const I bits = hn::And(hn::ShiftRight<23>(hn::BitCast(d, v)), hn::Set(d, 255));
  const I e = hn::Max(hn::Sub(bits, hn::Set(d, 127)), hn::Set(d, least));
  const I known = hn::IfThenElse(hn::Eq(bits, hn::Zero(d)), hn::Set(d, -126), e);
  return hn::IfThenElse(hn::Eq(bits, hn::Set(d, 255)), hn::Set(d, kNotFinite), known);
}

/// Truncates numbers within the range of int32.
HWY_INLINE I Truncate(V v) {
#if HWY_TARGET == HWY_AVX2
  return I{_mm256_cvttps_epi32(v.raw)};
#elif HWY_TARGET == HWY_AVX3
  return I{_mm512_cvttps_epi32(v.raw)};
#else
  return hn::ConvertTo(Ints(), v);
#endif
}

HWY_INLINE Wide Widen(I v) {
  const Doubles d;
  return {hn::PromoteTo(d, hn::LowerHalf(HalfInts(), v)), hn::PromoteTo(d, hn::UpperHalf(HalfInts(), v))};
}
HWY_INLINE Wide Widen(V v) {
  const Doubles d;
  const hn::Half<Floats> half;
  return {hn::PromoteTo(d, hn::LowerHalf(half, v)), hn::PromoteTo(d, hn::UpperHalf(half, v))};
}
HWY_INLINE V Narrow(Wide v) {
  const hn::Half<Floats> half;
  return hn::Combine(Floats(), hn::DemoteTo(half, v.high), hn::DemoteTo(half, v.low));
}
HWY_INLINE Wide operator+(Wide a, Wide b) {
  return {hn::Add(a.low, b.low), hn::Add(a.high, b.high)};
}
HWY_INLINE Wide operator*(Wide a, Wide b) {
  return {hn::Mul(a.low, b.low), hn::Mul(a.high, b.high)};
}
HWY_INLINE Wide FloorOf(Wide a) {
  return {hn::Floor(a.low), hn::Floor(a.high)};
}
/// 2^e for −1022 ≤ e ≤ 1023.
HWY_INLINE Wide PowersOfTwo(I e) {
  const Longs d;
  const I biased = hn::Add(e, hn::Set(Ints(), 1023));
  const auto power = [&](auto half) HWY_ATTR {
    return hn::BitCast(Doubles(), hn::ShiftLeft<52>(hn::PromoteTo(d, half)));
  };
  return {power(hn::LowerHalf(HalfInts(), biased)), power(hn::UpperHalf(HalfInts(), biased))};
}
/// 2^(bits − e) for kLowest ≤ e ≤ kHighest.
HWY_INLINE V ScaleTo(int bits, I e) {
  return hn::BitCast(Floats(), hn::ShiftLeft<23>(hn::Sub(hn::Set(Ints(), bits + 127), e)));
}

/// The terms of a group, for some rows of A and a vector of columns of B: element (i, k) of A is
/// a[k * a_term + i], row k of B is b[k * b_term]; exponents lie alike, those of B kLanes apart. `coded` are
/// the factors as the definition has them: coded elements with scales, else a and b.
struct Terms {
  const float* a;
  const std::int32_t* of_a;
  std::size_t a_term;
  const float* b;
  std::size_t b_term;
  const std::int32_t* of_b;
  const float* coded_a;
  const float* coded_b;
  std::size_t coded_b_term;
  std::size_t count;

  /// Goes on to the terms after the group.
  HWY_INLINE void Advance() {
    a += count * a_term;
    of_a += count * a_term;
    b += count * b_term;
    of_b += count * kLanes;
    coded_a += count * a_term;
    coded_b += count * coded_b_term;
  }
  /// Goes on to the rows after `rows`.
  HWY_INLINE void Skip(std::size_t rows) {
    a += rows;
    of_a += rows;
    coded_a += rows;
  }
};

/// Computes one row by the definition.
HWY_NOINLINE inline V SlowGroup(const CardSum& sum, const Terms& t, std::size_t row, V c) {
  constexpr std::size_t kMost = 64;
  float a[kMost], b[kMost];
  HWY_ALIGN float sums[kLanes];
  hn::Store(c, Floats(), sums);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    for (std::size_t k = 0; k < t.count; ++k) {
      a[k] = t.coded_a[k * t.a_term + row];
      b[k] = t.coded_b[k * t.coded_b_term + lane];
    }
    sums[lane] = add_group(sum, {a, t.count}, {b, t.count}, sums[lane]);
  }
  return hn::Load(Floats(), sums);
}

/// True if every lane whose group has too small exponents has only products that are zero; `c` must be zero
/// there too unless it is null.
HWY_NOINLINE inline bool OnlyZeros(const Terms& t, std::size_t row, I most, const V* c) {
  const Floats d;
  V large = c == nullptr ? hn::Zero(d) : hn::Abs(*c);
  for (std::size_t k = 0; k < t.count; ++k) {
    if (t.a[k * t.a_term + row] == 0) continue;
    large = hn::Max(large, hn::Abs(hn::LoadU(d, t.b + k * t.b_term)));
  }
  const auto low = hn::RebindMask(d, hn::Lt(most, hn::Set(Ints(), kLowest)));
  const auto high = hn::Gt(most, hn::Set(Ints(), kHighest));
  return hn::AllFalse(Ints(), high) && hn::AllFalse(d, hn::And(low, hn::Ne(large, hn::Zero(d))));
}

HWY_INLINE bool OutOfRange(I most) {
  const Ints d;
  return !hn::AllFalse(d, hn::Or(hn::Gt(most, hn::Set(d, kHighest)), hn::Lt(most, hn::Set(d, kLowest))));
}

/// The largest exponents of products of every `step`-th term from `first` on, and of `most`.
template <std::size_t kRows>
HWY_INLINE void LargestExponents(const Terms& t, std::size_t first, std::size_t step, I (&most)[kRows]) {
  const Ints d;
  for (std::size_t k = first; k < t.count; k += step) {
    const I right = hn::Load(d, t.of_b + k * kLanes);
    HWY_UNROLL(4)
    for (std::size_t i = 0; i < kRows; ++i)
      most[i] = hn::Max(most[i], hn::Add(right, hn::Set(d, t.of_a[k * t.a_term + i])));
  }
}

/// Adds the truncated products of every `step`-th of terms [first, end) to `sums`.
template <std::size_t kRows>
HWY_INLINE void AddProducts(const Terms& t, std::size_t first, std::size_t end, std::size_t step,
                            const V (&scale)[kRows], I (&sums)[kRows]) {
  const Floats d;
  for (std::size_t k = first; k < end; k += step) {
    const V right = hn::LoadU(d, t.b + k * t.b_term);
    HWY_UNROLL(4)
    for (std::size_t i = 0; i < kRows; ++i) {
      const V product = hn::Mul(hn::Set(d, t.a[k * t.a_term + i]), right);
      sums[i] = hn::Add(sums[i], Truncate(hn::Mul(product, scale[i])));
    }
  }
}

/// Truncates sums to the bits of the result, or rounds them to f16.
HWY_INLINE V TruncatedResult(const CardSum& sum, Wide v) {
  const Longs d;
  const Doubles w;
  const int dropped = sum.f16 ? 29 : 52 - sum.result_bits;
  const auto kept = hn::Set(d, static_cast<std::int64_t>(~std::uint64_t{0} << dropped));
  const auto cut = [&](W x) HWY_ATTR {
    W result = hn::BitCast(w, hn::And(hn::BitCast(d, x), kept));
    if (!sum.f16) return result;
    // To nearest from here on: the last bit of f32 stands for all that is dropped.
    const auto odd = hn::BitCast(w, hn::Or(hn::BitCast(d, result), hn::Set(d, std::int64_t{1} << dropped)));
    return hn::IfThenElse(hn::Eq(result, x), result, odd);
  };
  const V narrow = Narrow({cut(v.low), cut(v.high)});
  if (!sum.f16) return narrow;
  const V rounded = mantissa::HWY_NAMESPACE::RoundLanes<Scalar::f16>(Floats(), narrow);
  return hn::Add(rounded, hn::Zero(Floats()));  // sums that round to zero are +0
}

/// GroupSum::truncated. Eight products and an accumulator below 4 · 2^25 each fit int32; with kWide there are
/// more.
template <bool kWide, std::size_t kRows>
HWY_INLINE void AddTruncated(const CardSum& sum, const Terms& t, V (&c)[kRows]) {
  const Ints di;
  constexpr std::size_t kTogether = 8;
  I most[kRows], sums[kRows];
  V scale[kRows];
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kRows; ++i) most[i] = Exponents(c[i], sum.f16 ? -14 : -126);
  LargestExponents(t, 0, 1, most);
  bool slow[kRows] = {}, any = false;
  I low = most[0], high = most[0];
  HWY_UNROLL(4)
  for (std::size_t i = 1; i < kRows; ++i) {
    low = hn::Min(low, most[i]);
    high = hn::Max(high, most[i]);
  }
  if (HWY_UNLIKELY(OutOfRange(low) || OutOfRange(high))) {
    for (std::size_t i = 0; i < kRows; ++i) {
      slow[i] = OutOfRange(most[i]) && !OnlyZeros(t, i, most[i], &c[i]);
      any = any || slow[i];
      if (slow[i]) c[i] = SlowGroup(sum, t, i, c[i]);
      most[i] = hn::Min(hn::Max(most[i], hn::Set(di, kLowest)), hn::Set(di, kHighest));
    }
  }
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kRows; ++i) {
    scale[i] = ScaleTo(sum.bits, most[i]);
    sums[i] = Truncate(hn::Mul(c[i], scale[i]));
  }
  Wide total[kRows];
  if constexpr (kWide) {
    AddProducts(t, 0, std::min(t.count, kTogether), 1, scale, sums);
    for (std::size_t i = 0; i < kRows; ++i) total[i] = Widen(sums[i]);
    for (std::size_t k = kTogether; k < t.count; k += kTogether) {
      for (std::size_t i = 0; i < kRows; ++i) sums[i] = hn::Zero(di);
      AddProducts(t, k, std::min(t.count, k + kTogether), 1, scale, sums);
      for (std::size_t i = 0; i < kRows; ++i) total[i] = total[i] + Widen(sums[i]);
    }
  } else {
    AddProducts(t, 0, t.count, 1, scale, sums);
    for (std::size_t i = 0; i < kRows; ++i) total[i] = Widen(sums[i]);
  }
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kRows; ++i) {
    const Wide unit = PowersOfTwo(hn::Sub(most[i], hn::Set(di, sum.bits)));
    const V result = TruncatedResult(sum, total[i] * unit);
    if (!any || !slow[i]) c[i] = result;
  }
}

/// GroupSum::floored, and floored_halves with kHalves = 2.
template <std::size_t kHalves, std::size_t kRows>
HWY_INLINE void AddFloored(const CardSum& sum, const Terms& t, V (&c)[kRows]) {
  const Ints di;
  const I lowest = hn::Set(di, kLowest);
  I most[kHalves][kRows], sums[kHalves][kRows];
  bool slow[kRows] = {};
  for (std::size_t h = 0; h < kHalves; ++h) {
    for (std::size_t i = 0; i < kRows; ++i) {
      most[h][i] = hn::Set(di, -4 * 126);
      sums[h][i] = hn::Zero(di);
    }
    LargestExponents(t, h, kHalves, most[h]);
    V scale[kRows];
    for (std::size_t i = 0; i < kRows; ++i) {
      if (HWY_UNLIKELY(OutOfRange(most[h][i]))) slow[i] = slow[i] || !OnlyZeros(t, i, most[h][i], nullptr);
      scale[i] = ScaleTo(sum.bits, hn::Min(hn::Max(most[h][i], lowest), hn::Set(di, kHighest)));
    }
    AddProducts(t, h, t.count, kHalves, scale, sums[h]);
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    I largest = most[0][i];
    if (kHalves == 2) largest = hn::Max(largest, most[kHalves - 1][i]);
    const I of_c = Exponents(c[i], -126), e = hn::Max(largest, of_c);
    if (HWY_UNLIKELY(slow[i] || !hn::AllFalse(di, hn::Gt(e, hn::Set(di, kHighest))))) {
      c[i] = SlowGroup(sum, t, i, c[i]);
      continue;
    }
    Wide products = Widen(sums[0][i]);
    if (kHalves == 2) {
      const Wide odd = Widen(sums[kHalves - 1][i]);
      products = FloorOf(products * PowersOfTwo(hn::Sub(most[0][i], largest))) +
                 FloorOf(odd * PowersOfTwo(hn::Sub(most[kHalves - 1][i], largest)));
    }
    products = FloorOf(products * PowersOfTwo(hn::Add(hn::Sub(largest, e), hn::Set(di, 31 - sum.bits))));
    V kept = c[i];
    if (kHalves == 2) {
      const auto near = hn::Gt(of_c, hn::Sub(e, hn::Set(di, 26)));
      kept = hn::IfThenElseZero(hn::RebindMask(Floats(), near), kept);
    }
    const Wide of_accumulator = FloorOf(Widen(kept) * PowersOfTwo(hn::Sub(hn::Set(di, 24), e)));
    const W by = hn::Set(Doubles(), 128.0);
    c[i] = Narrow((products + of_accumulator * Wide{by, by}) * PowersOfTwo(hn::Sub(e, hn::Set(di, 31))));
  }
}

/// Numbers below 2^least become zeros of their sign.
HWY_INLINE V Flush(V v, int least) {
  const Floats d;
  const V smallest = hn::BitCast(d, hn::Set(Ints(), (least + 127) << 23));
  const V zero = hn::And(v, hn::BitCast(d, hn::Set(hn::Rebind<std::uint32_t, Floats>(), 0x80000000U)));
  return hn::IfThenElse(hn::Lt(hn::Abs(v), smallest), zero, v);
}

/// GroupSum::pairs. `opens`: the group is the first of an instruction.
template <std::size_t kRows>
HWY_INLINE void AddPairs(const CardSum& sum, const Terms& t, bool opens, V (&c)[kRows]) {
  const Floats d;
  for (std::size_t i = 0; i < kRows; ++i) {
    V terms[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (std::size_t k = 0; k < t.count; ++k) {
      const V left = Flush(hn::Set(d, t.a[k * t.a_term + i]), sum.least_a);
      const V right = Flush(hn::LoadU(d, t.b + k * t.b_term), sum.least_b);
      terms[k] = Flush(hn::MulAdd(left, right, hn::Zero(d)), -126);
    }
    V total = Flush(hn::Add(terms[0], terms[1]), -126);
    if (sum.group == 4) total = Flush(hn::Add(total, Flush(hn::Add(terms[2], terms[3]), -126)), -126);
    if (opens) c[i] = hn::IfThenZeroElse(hn::Lt(hn::Abs(c[i]), hn::Set(d, 0x1p-126F)), c[i]);
    c[i] = Flush(hn::Add(c[i], total), -126);
  }
}

template <std::size_t kRows>
HWY_INLINE void AddChain(const Terms& t, V (&c)[kRows]) {
  const Floats d;
  for (std::size_t k = 0; k < t.count; ++k) {
    const V right = hn::LoadU(d, t.b + k * t.b_term);
    for (std::size_t i = 0; i < kRows; ++i) c[i] = hn::MulAdd(hn::Set(d, t.a[k * t.a_term + i]), right, c[i]);
  }
}

}  // namespace card_sums
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_CARDS_GROUP_SUMS_INL_H_
