// The instruction sets for which the library's vector code is compiled, as Highway's target bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mantissa {

/// One Highway target (HWY_AVX2 …), or kBestTarget. The choice does not change any bit of any result.
using SimdTarget = std::int64_t;
inline constexpr SimdTarget kBestTarget = 0;

/// Returns the compiled targets that this machine supports, best first.
std::vector<SimdTarget> simd_targets();

/// Returns the index of `target` in a table made by HWY_EXPORT.
std::size_t simd_index(SimdTarget target);

}  // namespace mantissa
