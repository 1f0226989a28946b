#include "mantissa/core/numeric/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/core/numeric/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {

void LoadF32(const void* src, Scalar type, std::size_t offset, std::size_t n, float* dst) {
  LoadRow(src, type, offset, n, dst);
}
void LoadF64(const void* src, Scalar type, std::size_t offset, std::size_t n, double* dst) {
  LoadRow(src, type, offset, n, dst);
}
void StoreF32(const float* src, std::size_t n, void* dst, Scalar type, std::size_t offset) {
  StoreRow(src, n, dst, type, offset);
}
void StoreF64(const double* src, std::size_t n, void* dst, Scalar type, std::size_t offset) {
  StoreRow(src, n, dst, type, offset);
}
void RoundF32(float* row, std::size_t n, Scalar type) {
  RoundRow(row, n, type);
}
void RoundF64(double* row, std::size_t n, Scalar type) {
  RoundRow(row, n, type);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa {

HWY_EXPORT(LoadF32);
HWY_EXPORT(LoadF64);
HWY_EXPORT(StoreF32);
HWY_EXPORT(StoreF64);
HWY_EXPORT(RoundF32);
HWY_EXPORT(RoundF64);

void load_row(const void* src, Scalar type, std::size_t offset, std::size_t n, float* dst,
              SimdTarget target) {
  HWY_DISPATCH_TABLE(LoadF32)[simd_index(target)](src, type, offset, n, dst);
}

void load_row(const void* src, Scalar type, std::size_t offset, std::size_t n, double* dst,
              SimdTarget target) {
  HWY_DISPATCH_TABLE(LoadF64)[simd_index(target)](src, type, offset, n, dst);
}

void store_row(const float* src, std::size_t n, void* dst, Scalar type, std::size_t offset,
               SimdTarget target) {
  HWY_DISPATCH_TABLE(StoreF32)[simd_index(target)](src, n, dst, type, offset);
}

void store_row(const double* src, std::size_t n, void* dst, Scalar type, std::size_t offset,
               SimdTarget target) {
  HWY_DISPATCH_TABLE(StoreF64)[simd_index(target)](src, n, dst, type, offset);
}

void round_row(float* row, std::size_t n, Scalar type, SimdTarget target) {
  HWY_DISPATCH_TABLE(RoundF32)[simd_index(target)](row, n, type);
}

void round_row(double* row, std::size_t n, Scalar type, SimdTarget target) {
  HWY_DISPATCH_TABLE(RoundF64)[simd_index(target)](row, n, type);
}

}  // namespace mantissa
#endif
