// The instruction sets that this library's vector code is compiled for, as Highway's target bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mantissa {

/// A set of one Highway target (HWY_AVX2 …), or kBestTarget. Which one runs changes no bit of any result.
using SimdTarget = std::int64_t;
inline constexpr SimdTarget kBestTarget = 0;

/// The targets that are compiled and that this machine can run, best first.
std::vector<SimdTarget> simd_targets();

/// Index of `target` in a table made by HWY_EXPORT.
std::size_t simd_index(SimdTarget target);

}  // namespace mantissa
