#include "mantissa/core/numeric/encode_row.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/core/numeric/stochastic.h"

namespace mantissa {
namespace {

void toward_zero(const float* src, std::size_t n, void* dst, Scalar type, SimdTarget target) {
  round_toward_zero(src, n, dst, type, target);
}

void toward_zero(const double* src, std::size_t n, void* dst, Scalar type, SimdTarget /*target*/) {
  const std::size_t bytes = bytes_of(type);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t code = encode(src[i], type, {Rounding::toward_zero});
    std::memcpy(static_cast<std::byte*>(dst) + i * bytes, &code, bytes);  // little-endian
  }
}

template <class T>
void encode_unbounded(const T* src, std::size_t n, void* dst, Scalar type, const RowRounding& how,
                      std::uint64_t index, SimdTarget target) {
  const bool exact = type == Scalar::f64 || bytes_of(type) > sizeof(T) ||
                     (type == Scalar::f32 && sizeof(T) == sizeof(float));
  if (exact || how.rounding == Rounding::nearest) return store_row(src, n, dst, type, 0, target);
  if (how.rounding == Rounding::toward_zero) return toward_zero(src, n, dst, type, target);
  stochastic_round(src, n, dst, type, how.stream, index, target);
}

/// Saturation clamps values beyond the range, infinities included, to the largest finite value before
/// rounding. That value lies on every format's grid, so rounding cannot leave the range again.
template <class T>
void encode_any(const T* src, std::size_t n, void* dst, Scalar type, const RowRounding& how,
                std::uint64_t index, SimdTarget target) {
  if (!how.saturate || type == Scalar::f64) return encode_unbounded(src, n, dst, type, how, index, target);
  constexpr std::size_t kPart = 1024;
  const T most = static_cast<T>(traits(type).max_finite);
  std::array<T, kPart> part;
  for (std::size_t at = 0; at < n; at += kPart) {
    const std::size_t length = std::min(kPart, n - at);
    for (std::size_t i = 0; i < length; ++i) {
      const T x = src[at + i];
      const T below = x > most ? most : x;  // keeps a NaN
      part[i] = below < -most ? -most : below;
    }
    encode_unbounded(part.data(), length, static_cast<std::byte*>(dst) + at * bytes_of(type), type, how,
                     index + at, target);
  }
}

}  // namespace

void encode_row(const float* src, std::size_t n, void* dst, Scalar type, const RowRounding& how,
                std::uint64_t index, SimdTarget target) {
  encode_any(src, n, dst, type, how, index, target);
}

void encode_row(const double* src, std::size_t n, void* dst, Scalar type, const RowRounding& how,
                std::uint64_t index, SimdTarget target) {
  encode_any(src, n, dst, type, how, index, target);
}

}  // namespace mantissa
