// What a file of raw ids holds where it does not hold ids: other programs write floating-point numbers, or a
// header, under the same name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace mantissa::text {

/// What the first bytes of a token file say of it: "f32", "f64", "f16" or "bf16" where all of them are ids
/// below `vocabulary` in that format (16 of f32 or f64, 32 of 16 bits at least, not all of them 0), ".npy"
/// where it is an array with NumPy's header; nothing where they may be unsigned integers.
std::optional<std::string_view> stranger_among_ids(std::span<const std::byte> begin, std::int64_t vocabulary);

}  // namespace mantissa::text
