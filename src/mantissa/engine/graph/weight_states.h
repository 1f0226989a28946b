// States of an optimizer that are weights themselves: they start at the weight that they belong to, and are
// kept in the arithmetic's format (f32, or f64 under 64-true), because the small steps of an average are lost
// in fewer bits.
#pragma once

#include <string_view>

#include "mantissa/core/numeric/philox.h"

namespace mantissa::graph {

/// Tells such states from moments by their random streams, which have no bits in use: no value of theirs is
/// rounded stochastically. RandomUse::average is read by validation, eval and the saved model.
inline bool starts_at_weight(RandomUse state) {
  return state == RandomUse::average || state == RandomUse::weight_state;
}

/// The names of these states begin with this, and end with the name of the weight: "average.NAME".
inline constexpr std::string_view kAveragePrefix = "average.";

}  // namespace mantissa::graph
