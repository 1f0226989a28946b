#include "mantissa/files/io/transpose.h"

#include <cstring>

namespace mantissa::io {

std::vector<std::byte> transpose(std::span<const std::byte> from, std::size_t rows, std::size_t columns,
                                 std::size_t width) {
  std::vector<std::byte> to(from.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c)
      std::memcpy(to.data() + (c * rows + r) * width, from.data() + (r * columns + c) * width, width);
  }
  return to;
}

}  // namespace mantissa::io
