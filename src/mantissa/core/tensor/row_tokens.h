// A view of one row of tokens, by which data sets hand their rows to programs.
#pragma once

#include <cstdint>
#include <span>

namespace mantissa {

/// One row, borrowed. The model predicts targets[t] after ids[0 … t].
struct RowTokens {
  std::span<const std::int32_t> ids;
  std::span<const std::int32_t> targets;         // as many as ids; −1: no prediction
  std::span<const float> weights = {};           // as many as ids; empty: 1 for each token with a target
  std::span<const std::int64_t> documents = {};  // lengths of parts that attend only to themselves, at
                                                 // positions from 0; empty: one part
  std::uint64_t sequence = 0;                    // a key of the row's random numbers
  std::int64_t position = 0;  // of the first token: the tokens before it, whose states `slot` holds
  std::int64_t slot = -1;     // of Segment::slot; -1: the number of the row in its batch
};

}  // namespace mantissa
