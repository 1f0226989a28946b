// States of an optimizer that are weights themselves: they start at the weight that they belong to, and are
// kept in the arithmetic's format (f32, or f64 under 64-true), because the small steps of an average are lost
// in fewer bits.
#pragma once

#include <string_view>

#include "mantissa/core/numeric/philox.h"

namespace mantissa::graph {

/// Tell such states from moments, as RandomUse::compensation does for compensations. No value of these
/// states is ever rounded stochastically, so the streams have no bits in use.
inline constexpr RandomUse kAverageState{11};  // read by validation, eval and the saved model
inline constexpr RandomUse kWeightState{12};   // any other

/// The streams of the third and later moments of a parameter; RandomUse has those of the first two.
inline constexpr RandomUse kLaterMoments[] = {RandomUse{13}, RandomUse{14}, RandomUse{15}, RandomUse{16}};

inline bool starts_at_weight(RandomUse state) {
  return state == kAverageState || state == kWeightState;
}

/// The names of these states begin with this, and end with the name of the weight: "average.NAME".
inline constexpr std::string_view kAveragePrefix = "average.";

}  // namespace mantissa::graph
