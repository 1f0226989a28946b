// Rows of values into codes of any format by any rounding: numeric/round.h's encode over arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/numeric/format.h"
#include "mantissa/numeric/philox.h"
#include "mantissa/numeric/simd_target.h"

namespace mantissa {

/// How a row is rounded. `stream` gives the random bits of stochastic rounding, element i of the row those of
/// index + i. Subnormals are kept.
struct RowRounding {
  Rounding rounding = Rounding::nearest;
  bool saturate = false;
  RandomStream stream{0, RandomUse::rounding, 0, 0};
};

/// Elements [0, n) of `dst`, stored as `type`, = encode(src[i], type, rounding, stream.bits(index + i)). In
/// f64 nothing saturates. The same bits on every instruction set, however the array is cut.
void encode_row(const float* src, std::size_t n, void* dst, Scalar type, const RowRounding& how,
                std::uint64_t index = 0, SimdTarget target = kBestTarget);
void encode_row(const double* src, std::size_t n, void* dst, Scalar type, const RowRounding& how,
                std::uint64_t index = 0, SimdTarget target = kBestTarget);

}  // namespace mantissa
