// Where segments begin among the tokens of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mantissa/core/tensor/extent.h"

namespace mantissa::kernels {

/// A token inside a segment, and the first token of a sequence. Other numbers are those of the slot that the
/// first token of a segment continues.
inline constexpr std::int64_t kInside = -2, kOpens = -1;

/// Returns one of these numbers for each token.
inline std::vector<std::int64_t> segment_begins(const Extent& extent) {
  std::vector<std::int64_t> begins(static_cast<std::size_t>(extent.tokens), kInside);
  for (const Segment& s : extent.segments) {
    if (s.length > 0) begins[static_cast<std::size_t>(s.begin)] = s.position > 0 ? s.slot : kOpens;
  }
  return begins;
}

}  // namespace mantissa::kernels
