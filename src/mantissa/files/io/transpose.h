// The transpose of a matrix of any dtype.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace mantissa::io {

/// Returns the transpose of a row-major matrix of elements of `width` bytes.
std::vector<std::byte> transpose(std::span<const std::byte> from, std::size_t rows, std::size_t columns,
                                 std::size_t width);

}  // namespace mantissa::io
