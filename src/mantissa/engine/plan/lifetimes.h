// The steps during which the memory of each buffer is needed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "mantissa/engine/plan/program.h"

namespace mantissa::plan {

/// The steps from the first that touches a buffer to the last.
struct Lifetime {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = -1;

  void add(std::int64_t step) {
    first = std::min(first, step);
    last = std::max(last, step);
  }
  void add(const Lifetime& other) {
    first = std::min(first, other.first);
    last = std::max(last, other.last);
  }
  /// Returns true if a step touches the buffer.
  bool used() const { return last >= 0; }
  std::int64_t steps() const { return last - first + 1; }
};

/// Extends the lifetimes of buffers that hold all tokens over the chunked ranges that touch them: the first
/// step of a range runs again after its last one.
void extend_over_chunks(const Program& program, std::vector<Lifetime>& lives);

/// Returns the lifetime of each buffer, without those of its views. Outputs of the program live on after the
/// last step, and with `keep_values` every buffer that is used.
std::vector<Lifetime> lifetimes(const Program& program, bool keep_values = false);

}  // namespace mantissa::plan
