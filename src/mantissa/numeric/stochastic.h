// Rounding of arrays other than to nearest, for weights and moments kept in fewer bits than their updates
// need.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/numeric/format.h"
#include "mantissa/numeric/philox.h"
#include "mantissa/numeric/simd_target.h"

namespace mantissa {

/// dst[i] (stored as `type`) = src[i] rounded to a neighbour with probability by nearness, i < n:
/// encode(src[i], type, stochastic, stream.bits(index + i)), where `index` is that of src[0] in the
/// parameter's canonical layout. The same bits on every instruction set, however the array is cut.
void stochastic_round(const float* src, std::size_t n, void* dst, Scalar type, const RandomStream& stream,
                      std::uint64_t index = 0, SimdTarget target = kBestTarget);
void stochastic_round(const double* src, std::size_t n, void* dst, Scalar type, const RandomStream& stream,
                      std::uint64_t index = 0, SimdTarget target = kBestTarget);

/// dst[i] (stored as `type`) = src[i] rounded toward zero, i < n: encode(src[i], type, toward_zero).
void round_toward_zero(const float* src, std::size_t n, void* dst, Scalar type,
                       SimdTarget target = kBestTarget);

}  // namespace mantissa
