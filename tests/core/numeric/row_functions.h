// Functions of SIMD code over rows, for tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/scaled.h"
#include "mantissa/core/numeric/simd_target.h"

namespace mantissa::testing {

/// Reductions of the `n` elements at `p` by LaneSum and MaxRow of core/numeric/lanes-inl.h: the sum, the sum
/// of products with `q`, and the largest element.
struct RowReductions {
  double sum = 0;
  double product = 0;
  double max = 0;
};
RowReductions reduce_row(const float* p, const float* q, std::size_t n, SimdTarget target);
RowReductions reduce_row(const double* p, const double* q, std::size_t n, SimdTarget target);

/// Codes round_blocks() by EncodeRow() of core/numeric/encode_blocks-inl.h: ⌈n · bits / 8⌉ bytes of elements,
/// ⌈n / block⌉ scales.
void encode_blocks(BlockFormat f, const float* row, std::size_t n, std::uint8_t* elements,
                   std::uint8_t* scales, float tensor_scale, SimdTarget target,
                   ScaleRounding rounding = ScaleRounding::floor);

}  // namespace mantissa::testing
