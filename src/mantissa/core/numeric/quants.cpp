#include "mantissa/core/numeric/quants.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/core/numeric/quants.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/quants-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa {
namespace HWY_NAMESPACE {

void DequantizeImpl(const QuantRows& m, std::size_t row, std::size_t begin, std::size_t n, float* values) {
  DequantizeRow(m, row, begin, n, values);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa {
namespace {

HWY_EXPORT(DequantizeImpl);

/// True if all bits of an f16 number's exponent are set: inf or NaN.
bool is_nonfinite_half(const std::uint8_t* half) {
  return (half[1] & 0x7cU) == 0x7cU;
}

}  // namespace

void dequantize(const QuantRows& m, std::size_t row, std::size_t begin, std::size_t n, float* values,
                SimdTarget target) {
  HWY_DISPATCH_TABLE(DequantizeImpl)[simd_index(target)](m, row, begin, n, values);
}

std::size_t first_nonfinite_block(QuantFormat f, std::span<const std::uint8_t> bytes) {
  const QuantTraits t = traits(f);
  const std::size_t blocks = bytes.size() / t.bytes;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::uint8_t* block = bytes.data() + b * t.bytes;
    if (is_nonfinite_half(block) || (t.minimum && is_nonfinite_half(block + 2))) return b;
  }
  return blocks;
}

}  // namespace mantissa
#endif
