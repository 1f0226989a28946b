// Rounding to bf16 by VCVTNE2PS2BF16, where the processor has it. The instruction rounds to nearest even and
// keeps NaN as RoundToGrid does, but takes subnormal numbers as zero.
#if defined(MANTISSA_KERNELS_CPU_BF16_ROUND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_BF16_ROUND_INL_H_
#undef MANTISSA_KERNELS_CPU_BF16_ROUND_INL_H_
#else
#define MANTISSA_KERNELS_CPU_BF16_ROUND_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "mantissa/core/numeric/convert-inl.h"

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// How numbers round to bf16: by_code does not use the instruction, `checked` uses it if none of them is
/// subnormal, and `normal` requires that none is. The last two require has_bf16_pairs() if HWY_TARGET is
/// HWY_AVX3.
enum class BfloatRounding : std::uint8_t { by_code, checked, normal };

/// Rounds two vectors to bf16 and writes them to `p`, one after the other.
template <BfloatRounding kHow, class D>
HWY_INLINE void StoreBfloatPair(D d, hn::Vec<D> first, hn::Vec<D> second, std::uint8_t* HWY_RESTRICT p) {
#if HWY_TARGET == HWY_AVX3
  constexpr int kSubnormal = 0x20;  // a class of numbers of VFPCLASSPS
  if constexpr (kHow != BfloatRounding::by_code) {
    const bool exact =
        kHow == BfloatRounding::normal ||
        (_mm512_fpclass_ps_mask(first.raw, kSubnormal) | _mm512_fpclass_ps_mask(second.raw, kSubnormal)) == 0;
    if (HWY_LIKELY(exact)) {
      decltype(first.raw) pair;
      __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(pair) : "v"(first.raw), "v"(second.raw));
      return hn::StoreU(decltype(first){pair}, d, reinterpret_cast<float*>(p));
    }
  }
#endif
  mantissa::HWY_NAMESPACE::StoreLanePair<Scalar::bf16>(d, first, second, p);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_BF16_ROUND_INL_H_
