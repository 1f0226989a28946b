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
};

}  // namespace mantissa
