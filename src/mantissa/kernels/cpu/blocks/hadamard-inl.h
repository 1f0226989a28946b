// The random Hadamard transform of 16 rows (kernels/hadamard.h). Included once per instruction set (Highway's
// -inl.h idiom).
#if defined(MANTISSA_KERNELS_CPU_BLOCKS_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_BLOCKS_HADAMARD_INL_H_
#undef MANTISSA_KERNELS_CPU_BLOCKS_HADAMARD_INL_H_
#else
#define MANTISSA_KERNELS_CPU_BLOCKS_HADAMARD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/factor-inl.h"
#include "mantissa/kernels/hadamard.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Transforms every 16 of `count` rows of n values, `stride` apart, in place. Results round to `type`.
HWY_INLINE void HadamardRows(float* HWY_RESTRICT values, std::size_t count, std::size_t stride, std::size_t n,
                             std::uint16_t signs, Scalar type) {
  constexpr auto kRows = static_cast<std::size_t>(kHadamard);
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN float columns[kRows * HWY_MAX_BYTES / sizeof(float)];  // of one vector
  for (std::size_t first = 0; first + kRows <= count; first += kRows) {
    float* rows = values + first * stride;
    for (std::size_t i = 0; i < n; i += lanes) {
      for (std::size_t row = 0; row < kRows; ++row) {
        const auto x = mantissa::HWY_NAMESPACE::LoadCount(d, rows + row * stride + i, n - i);
        hn::Store((signs >> row & 1) != 0 ? hn::Neg(x) : x, d, columns + row * lanes);
      }
      for (std::size_t apart = 1; apart < kRows; apart *= 2) {
        for (std::size_t row = 0; row < kRows; ++row) {
          if ((row & apart) != 0) continue;
          float *low = columns + row * lanes, *high = columns + (row + apart) * lanes;
          const auto a = hn::Load(d, low), b = hn::Load(d, high);
          hn::Store(hn::Add(a, b), d, low);
          hn::Store(hn::Sub(a, b), d, high);
        }
      }
      const auto quarter = hn::Set(d, 0.25F);
      for (std::size_t row = 0; row < kRows; ++row)
        mantissa::HWY_NAMESPACE::StoreCount(hn::Mul(hn::Load(d, columns + row * lanes), quarter), d,
                                            rows + row * stride + i, n - i);
    }
    for (std::size_t row = 0; row < kRows; ++row)
      mantissa::HWY_NAMESPACE::RoundRow<float>(rows + row * stride, n, type);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_BLOCKS_HADAMARD_INL_H_
