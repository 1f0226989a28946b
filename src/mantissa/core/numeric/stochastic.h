// Rounding of arrays stochastically or toward zero, for weights and moments stored in fewer bits than their
// updates need.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/core/numeric/simd_target.h"

namespace mantissa {

/// Sets dst[i] (stored as `type`), i < n, to src[i] rounded to a neighbour with a probability proportional to
/// its nearness: encode(src[i], type, stochastic, stream.bits(index + i)). `index` is the index of src[0] in
/// the parameter's canonical layout. Every instruction set and every split of the array gives the same bits.
void stochastic_round(const float* src, std::size_t n, void* dst, Scalar type, const RandomStream& stream,
                      std::uint64_t index = 0, SimdTarget target = kBestTarget);
void stochastic_round(const double* src, std::size_t n, void* dst, Scalar type, const RandomStream& stream,
                      std::uint64_t index = 0, SimdTarget target = kBestTarget);

/// Sets dst[i] (stored as `type`), i < n, to src[i] rounded toward zero: encode(src[i], type, toward_zero).
void round_toward_zero(const float* src, std::size_t n, void* dst, Scalar type,
                       SimdTarget target = kBestTarget);

}  // namespace mantissa
