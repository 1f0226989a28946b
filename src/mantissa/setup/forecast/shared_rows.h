// What the ranks that share rows send each other.
#pragma once

#include <cstdint>

#include "mantissa/engine/plan/program.h"

namespace mantissa::forecast {

struct SharedRowBytes {
  double keys = 0;    // with values, and contributions to their gradients
  double states = 0;  // of recurrences, tokens before a block, and their gradients
};
/// Returns the bytes that part `part` of `parts` sends for a micro-batch of `rows` rows, as long as they can
/// be (engine/graph/key_ring.h).
SharedRowBytes shared_row_bytes(const plan::Program& program, std::int64_t rows, int part, int parts);

}  // namespace mantissa::forecast
