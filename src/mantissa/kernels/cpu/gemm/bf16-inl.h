// bf16 operands for units that multiply bf16 and flush subnormal numbers to zero, and the guard of these
// units.
//
// Let e be the sum of the smallest exponents of A's and B's factors that are not zero. All products are
// multiples of 2^(e − 14), and so are all sums of products that start from zero, rounded or not. With e ≥
// −112, these are multiples of 2^−126: no sum is subnormal, and taking subnormal numbers as zero changes
// nothing.
#if defined(MANTISSA_KERNELS_CPU_GEMM_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_BF16_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_BF16_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_BF16_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mantissa/kernels/cpu/bf16_pairs.h"
#include "mantissa/kernels/cpu/bf16_round-inl.h"
#include "mantissa/kernels/cpu/gemm/source-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace bf16 {
namespace hn = hwy::HWY_NAMESPACE;

using Word = std::uint32_t;  // a pair of bf16 values

/// The smallest sum of the biased exponents of two factors whose products and their sums are never subnormal.
inline constexpr std::uint32_t kLeastExponents = 2 * 127 - 112;

/// Returns the biased exponent in the head of a panel (Smallest::StoreExponent).
inline std::uint32_t ExponentAt(const std::uint16_t* head) {
  std::uint32_t exponent = 0;
  std::memcpy(&exponent, head, sizeof exponent);
  return exponent;
}

/// Returns true if no factor of two panels is subnormal and no sum of products of theirs can be.
inline bool NeverSubnormal(std::uint32_t of_a, std::uint32_t of_b) {
  return of_a > 0 && of_b > 0 && of_a + of_b >= kLeastExponents;
}

/// Returns the bits of one vector of f32 values.
HWY_INLINE hn::Vec<hn::ScalableTag<Word>> BitsOf(const float* from) {
  const hn::ScalableTag<float> d;
  return hn::BitCast(hn::ScalableTag<Word>(), hn::LoadU(d, from));
}

/// The smallest magnitude that is not zero among the bf16 values that were seen.
class Smallest {
 public:
  using D16 = hn::ScalableTag<std::uint16_t>;
  HWY_INLINE Smallest() : least_(hn::Set(D16(), 0xffff)) {}
  HWY_INLINE void See(hn::Vec<hn::ScalableTag<Word>> two) {
    const D16 d;
    const auto magnitude = hn::And(hn::BitCast(d, two), hn::Set(d, 0x7fff));
    least_ = hn::Min(least_, hn::Sub(magnitude, hn::Set(d, 1)));  // zero becomes the largest number
  }
  /// Returns its biased exponent: 0 for a subnormal number, 512 if all values are zero.
  std::uint32_t Exponent() const {
    const D16 d;
    HWY_ALIGN std::uint16_t lanes[hn::MaxLanes(D16())];
    hn::Store(least_, d, lanes);
    const std::uint32_t least = *std::min_element(std::begin(lanes), std::end(lanes));
    return (least + 1) >> 7U;
  }
  /// Stores its biased exponent in the head of a panel.
  void StoreExponent(std::uint16_t* head) const {
    const std::uint32_t exponent = Exponent();
    std::memcpy(head, &exponent, sizeof exponent);
  }
  /// Returns true if its biased exponent is below `exponent` ≤ 2 · 127.
  HWY_INLINE bool Below(std::uint32_t exponent) const {
    const D16 d;
    const auto least = static_cast<std::uint16_t>((exponent << 7U) - 1);  // of a magnitude that is not below
    return !hn::AllTrue(d, hn::Eq(hn::Max(least_, hn::Set(d, least)), least_));
  }

 private:
  hn::Vec<D16> least_;
};

/// Returns true if a source holds bf16 values that are multiplied as they are stored.
inline bool LiesAsBfloat(const PackSource& from) {
  return from.type == Scalar::bf16 && Unrounded(from);
}

/// Returns true if a source holds f32 values that are rounded to bf16, and nothing else.
inline bool RoundsToBfloat(const PackSource& from) {
  return from.type == Scalar::f32 && from.operand == Factor(Scalar::bf16) && from.unscale == 1 &&
         !from.InBlocks() && !from.Quantized();
}

/// Returns true if a source holds packed blocks, whose values are multiplied as they are.
inline bool DecodesToBfloat(const PackSource& from) {
  return from.InBlocks() && from.unscale == 1 && from.operand == Factor(Scalar::bf16);
}

/// Rounds `n` f32 values to bf16.
template <BfloatRounding kHow>
void RoundToBfloat(const float* HWY_RESTRICT from, std::size_t n, std::uint16_t* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  constexpr std::size_t kLanes = HWY_LANES(float);
  std::size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    StoreBfloatPair<kHow>(d, hn::LoadU(d, from + i), hn::LoadU(d, from + i + kLanes),
                          reinterpret_cast<std::uint8_t*>(to + i));
  }
  if (i < n) mantissa::HWY_NAMESPACE::StoreRow<float>(from + i, n - i, to, Scalar::bf16, i);
}

/// Returns elements [at, at + n) of a run as bf16, in place if possible, else in `buffer`. They must be bf16
/// values as operands.
inline const std::uint16_t* BfloatRow(const PackSource& from, std::size_t run, std::size_t at, std::size_t n,
                                      std::uint16_t* HWY_RESTRICT buffer) {
  if (LiesAsBfloat(from)) return static_cast<const std::uint16_t*>(from.data) + run * from.ld + at;
  if (RoundsToBfloat(from)) {
    const float* row = static_cast<const float*>(from.data) + run * from.ld + at;
    has_bf16_pairs() ? RoundToBfloat<BfloatRounding::checked>(row, n, buffer)
                     : RoundToBfloat<BfloatRounding::by_code>(row, n, buffer);
    return buffer;
  }
  if (DecodesToBfloat(from)) {
    mantissa::HWY_NAMESPACE::DecodeRowAsBf16(from.Packed(run), at, n, buffer);
    return buffer;
  }
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::uint16_t, decltype(d)> d16;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr std::size_t kLanes = HWY_LANES(float);
  HWY_ALIGN float wide[256 + kLanes];
  for (std::size_t part = 0; part < n; part += 256) {
    const std::size_t count = std::min<std::size_t>(256, n - part);
    const float* row = OperandRow<float>(from, run, at + part, count, wide);
    if (row != wide) std::copy_n(row, count, wide);
    for (std::size_t i = 0; i < count; i += kLanes) {
      const auto upper = hn::ShiftRight<16>(hn::BitCast(du, hn::Load(d, wide + i)));
      hn::StoreU(hn::TruncateTo(d16, upper), d16, buffer + part + i);
    }
  }
  return buffer;
}

}  // namespace bf16
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_BF16_INL_H_
