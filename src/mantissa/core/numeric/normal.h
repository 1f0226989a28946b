// Normally distributed random numbers without the C library: every machine and instruction set gives the same
// bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/philox.h"
#include "mantissa/core/numeric/simd_target.h"

namespace mantissa {

/// Sets out[i], i < n, to a standard normal number from block `first` + i of the stream: √(−2 ln u) cos 2πv
/// (Box and Muller, "A note on the generation of random normal deviates", 1958), where u in (0, 1] and v in
/// [0, 1) have 53 bits each. 2πv is reduced exactly; ln and cos are those of core/numeric/math-inl.h. The
/// result is within 3.6 ulp. Do not also call `bits` on the same stream: both read the same blocks.
void normal_row(const RandomStream& stream, std::uint64_t first, std::size_t n, double* out,
                SimdTarget target = kBestTarget);

}  // namespace mantissa
