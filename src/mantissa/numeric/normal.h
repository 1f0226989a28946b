// Normal random numbers, without the C library: the same bits on every machine and instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/numeric/philox.h"
#include "mantissa/numeric/simd_target.h"

namespace mantissa {

/// out[i] = a standard normal number from block `first` + i of the stream, i < n: √(−2 ln u) cos 2πv (Box and
/// Muller: "A note on the generation of random normal deviates", 1958) with u in (0, 1] and v in [0, 1) made
/// of 53 bits each. 2πv is reduced exactly; ln and cos are numeric/math-inl.h's: within 3.6 ulp together.
/// A stream that is asked for these should not be asked for `bits` too: they share blocks.
void normal_row(const RandomStream& stream, std::uint64_t first, std::size_t n, double* out,
                SimdTarget target = kBestTarget);

}  // namespace mantissa
