// Coded elements of blocks in the sums of cards (core/numeric/card_sum.h): numbers with scales that are
// powers of two, and exact sums of 16 products with scales of their own.
#if defined(MANTISSA_KERNELS_CPU_CARDS_CODED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_CARDS_CODED_INL_H_
#undef MANTISSA_KERNELS_CPU_CARDS_CODED_INL_H_
#else
#define MANTISSA_KERNELS_CPU_CARDS_CODED_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "mantissa/kernels/cpu/cards/group_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace card_sums {

/// The largest magnitude of a scale's exponent with which products of two elements are exact in f32.
inline constexpr int kUsualScale = 44;

/// The element of a coded element, and the code of its scale.
HWY_INLINE V ElementOf(V coded) {
  const Ints d;
  return hn::BitCast(Floats(), hn::AndNot(hn::Set(d, 255), hn::BitCast(d, coded)));
}
HWY_INLINE I ScaleCodeOf(V coded) {
  const Ints d;
  return hn::And(hn::BitCast(d, coded), hn::Set(d, 255));
}

/// Writes the numbers of `count` coded elements with e8m0 scales, and their exponents, in whole vectors.
/// Returns false if a scale is not usual; then what was written is meaningless.
HWY_INLINE bool DecodeCoded(const float* coded, std::size_t count, int least, float* values,
                            std::int32_t* exponents) {
  const Floats d;
  const Ints di;
  I largest = hn::Zero(di);  // magnitude of an exponent of scales
  const auto decode = [&](V both, std::size_t i) HWY_ATTR {
    const V element = ElementOf(both);
    const I code = ScaleCodeOf(both), scale = hn::Sub(code, hn::Set(di, 127));
    largest = hn::Max(largest, hn::Abs(scale));
    hn::Store(hn::Mul(element, hn::BitCast(d, hn::ShiftLeft<23>(code))), d, values + i);
    hn::Store(hn::Add(Exponents(element, least), scale), di, exponents + i);
  };
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) decode(hn::LoadU(d, coded + i), i);
  if (whole < count) {
    HWY_ALIGN float last[kLanes];
    std::fill_n(last, kLanes, std::bit_cast<float>(127));  // zeros with scales of 1
    std::copy(coded + whole, coded + count, last);
    decode(hn::Load(d, last), whole);
  }
  return hn::AllFalse(di, hn::Gt(largest, hn::Set(di, kUsualScale)));
}

/// Scales as significands and exponents. That of a scale that is not a number is kNotFinite.
struct Scales {
  V significand;
  I exponent;
};
HWY_INLINE Scales ReadScales(I codes, bool e4m3) {
  const Floats d;
  const Ints di;
  if (!e4m3) {
    const I e = hn::Sub(codes, hn::Set(di, 127));
    return {hn::Set(d, 1.0F), hn::IfThenElse(hn::Eq(codes, hn::Set(di, 255)), hn::Set(di, kNotFinite), e)};
  }
  const I magnitude = hn::And(codes, hn::Set(di, 127)), field = hn::ShiftRight<3>(magnitude),
          mantissa = hn::And(magnitude, hn::Set(di, 7));
  const auto normal = hn::Gt(field, hn::Zero(di));
  const I eighths = hn::Add(mantissa, hn::IfThenElseZero(normal, hn::Set(di, 8)));
  const I e = hn::Sub(hn::Max(field, hn::Set(di, 1)), hn::Set(di, 7));
  const I known = hn::IfThenElse(hn::Eq(magnitude, hn::Zero(di)), hn::Set(di, -126), e);
  return {hn::Mul(hn::ConvertTo(d, eighths), hn::Set(d, 0.125F)),
          hn::IfThenElse(hn::Eq(magnitude, hn::Set(di, 127)), hn::Set(di, kNotFinite), known)};
}

HWY_INLINE Wide TruncOf(Wide a) {
  return {hn::Trunc(a.low), hn::Trunc(a.high)};
}

/// Adds a group of at most 64 products, in sums of 16, to the accumulators. A sum is at most 16 · 36 and a
/// multiple of 1/4, so with its significands it is exact in f32, and aligned to 35 bits in f64.
template <std::size_t kRows>
HWY_INLINE void AddSums(const CardSum& sum, const Terms& t, V (&c)[kRows]) {
  constexpr std::size_t kOfSum = 16, kMost = 4;
  constexpr int kLeast = -110;  // results are multiples of 2^(kLeast − 35), which f32 has
  const Floats d;
  const Ints di;
  const bool e4m3 = sum.scales == CardScales::e4m3_of_sums;
  const std::size_t count = (t.count + kOfSum - 1) / kOfSum;
  V values[kMost][kRows];
  I exponents[kMost][kRows], most[kRows];
  for (std::size_t i = 0; i < kRows; ++i) most[i] = Exponents(c[i], -126);
  for (std::size_t q = 0; q < count; ++q) {
    const std::size_t first = q * kOfSum, end = std::min(t.count, first + kOfSum);
    const Scales right = ReadScales(ScaleCodeOf(hn::LoadU(d, t.coded_b + first * t.coded_b_term)), e4m3);
    for (std::size_t i = 0; i < kRows; ++i) values[q][i] = hn::Zero(d);
    for (std::size_t k = first; k < end; ++k) {
      const V b = ElementOf(hn::LoadU(d, t.coded_b + k * t.coded_b_term));
      for (std::size_t i = 0; i < kRows; ++i)
        values[q][i] = hn::MulAdd(ElementOf(hn::Set(d, t.coded_a[k * t.a_term + i])), b, values[q][i]);
    }
    for (std::size_t i = 0; i < kRows; ++i) {
      const Scales left = ReadScales(ScaleCodeOf(hn::Set(d, t.coded_a[first * t.a_term + i])), e4m3);
      values[q][i] = hn::Mul(values[q][i], hn::Mul(left.significand, right.significand));
      exponents[q][i] = hn::Add(left.exponent, right.exponent);
      most[i] = hn::Max(most[i], exponents[q][i]);
    }
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    const auto high = hn::Gt(most[i], hn::Set(di, kNotFinite / 2));
    const auto low = hn::Lt(most[i], hn::Set(di, kLeast));
    if (HWY_UNLIKELY(!hn::AllFalse(di, hn::Or(high, low)))) {
      V large = hn::Abs(c[i]);
      for (std::size_t q = 0; q < count; ++q) large = hn::Max(large, hn::Abs(values[q][i]));
      const auto nonzero = hn::Ne(large, hn::Zero(d));
      if (!hn::AllFalse(di, high) || !hn::AllFalse(d, hn::And(hn::RebindMask(d, low), nonzero))) {
        c[i] = SlowGroup(sum, t, i, c[i]);
        continue;
      }
      most[i] = hn::Max(most[i], hn::Set(di, kLeast));
    }
    const I up = hn::Sub(hn::Set(di, sum.bits), most[i]);
    Wide total = TruncOf(Widen(c[i]) * PowersOfTwo(up));
    for (std::size_t q = 0; q < count; ++q)
      total = total + TruncOf(Widen(values[q][i]) * PowersOfTwo(hn::Add(exponents[q][i], up)));
    const W zero = hn::Zero(Doubles());
    total = total + Wide{zero, zero};  // sums that are zero are +0
    c[i] = TruncatedResult(sum, total * PowersOfTwo(hn::Sub(most[i], hn::Set(di, sum.bits))));
  }
}

}  // namespace card_sums
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_CARDS_CODED_INL_H_
