#include "mantissa/core/numeric/stochastic.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/core/numeric/stochastic.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/stochastic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {

void StochasticF32(const float* src, std::size_t n, void* dst, Scalar type, const RandomStream& stream,
                   std::uint64_t index) {
  StoreRowStochastic(src, n, dst, type, 0, stream, index);
}

void StochasticF64(const double* src, std::size_t n, void* dst, Scalar type, const RandomStream& stream,
                   std::uint64_t index) {
  StoreRowStochastic(src, n, dst, type, 0, stream, index);
}

void TowardZeroF32(const float* src, std::size_t n, void* dst, Scalar type) {
  StoreRowTowardZero(src, n, dst, type, 0);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa {

HWY_EXPORT(StochasticF32);
HWY_EXPORT(StochasticF64);
HWY_EXPORT(TowardZeroF32);

void stochastic_round(const float* src, std::size_t n, void* dst, Scalar type, const RandomStream& stream,
                      std::uint64_t index, SimdTarget target) {
  HWY_DISPATCH_TABLE(StochasticF32)[simd_index(target)](src, n, dst, type, stream, index);
}

void stochastic_round(const double* src, std::size_t n, void* dst, Scalar type, const RandomStream& stream,
                      std::uint64_t index, SimdTarget target) {
  HWY_DISPATCH_TABLE(StochasticF64)[simd_index(target)](src, n, dst, type, stream, index);
}

void round_toward_zero(const float* src, std::size_t n, void* dst, Scalar type, SimdTarget target) {
  HWY_DISPATCH_TABLE(TowardZeroF32)[simd_index(target)](src, n, dst, type);
}

}  // namespace mantissa
#endif
