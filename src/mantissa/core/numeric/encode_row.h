// Encodes rows of values in any format with any rounding: core/numeric/round.h's encode over arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/core/numeric/simd_target.h"

namespace mantissa {

/// How a row is rounded. `stream` gives the random bits of stochastic rounding: element i of the row uses
/// those of index + i. Subnormals are kept.
struct RowRounding {
  Rounding rounding = Rounding::nearest;
  bool saturate = false;
  RandomStream stream{0, RandomUse::rounding, 0, 0};
};

/// Writes encode(src[i], type, rounding, stream.bits(index + i)) to element i of `dst`, stored as `type`, for
/// i < n. f64 never saturates. Every instruction set and every split of the array gives the same bits.
void encode_row(const float* src, std::size_t n, void* dst, Scalar type, const RowRounding& how,
                std::uint64_t index = 0, SimdTarget target = kBestTarget);
void encode_row(const double* src, std::size_t n, void* dst, Scalar type, const RowRounding& how,
                std::uint64_t index = 0, SimdTarget target = kBestTarget);

}  // namespace mantissa
