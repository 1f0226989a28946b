// Detects token files that hold no ids: other programs write floating-point numbers or a header to files with
// the same name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace mantissa::text {

/// Inspects the first bytes of a token file. Returns "f32", "f64", "f16" or "bf16" if all of them are ids
/// below `vocabulary` in that format (at least 16 values of f32 or f64, or 32 of 16 bits, not all 0). Returns
/// ".npy" for an array with NumPy's header, and null if the bytes may be unsigned integers.
std::optional<std::string_view> stranger_among_ids(std::span<const std::byte> begin, std::int64_t vocabulary);

}  // namespace mantissa::text
