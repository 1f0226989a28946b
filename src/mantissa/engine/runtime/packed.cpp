#include "mantissa/engine/runtime/packed.h"

#include <algorithm>

#include "mantissa/core/numeric/block_codes.h"

namespace mantissa::runtime {

void unpack_elements(const graph::Argument& packed, std::size_t from, std::size_t n, float* to) {
  if (packed.codes != StateCodes::none) {
    const auto count = static_cast<std::size_t>(packed.rows * packed.width);
    return decode_states({packed.codes, static_cast<std::byte*>(packed.data), count}, from, n, to);
  }
  const Layout layout{.type = packed.type, .blocks = packed.blocks};
  const auto* elements = static_cast<const std::uint8_t*>(packed.data);
  const std::uint8_t* scales = elements + layout.scales_begin(packed.rows, packed.width);
  const auto width = static_cast<std::size_t>(packed.width);
  for (std::size_t done = 0; done < n;) {
    const auto row = static_cast<std::int64_t>((from + done) / width);
    const std::size_t column = (from + done) % width, count = std::min(n - done, width - column);
    decode_blocks({elements + layout.element_offset(row, 0, packed.width),
                   scales + layout.scale_offset(row, 0, packed.width), packed.blocks->format,
                   packed.blocks->along_rows},
                  column, count, to + done);
    done += count;
  }
}

}  // namespace mantissa::runtime
