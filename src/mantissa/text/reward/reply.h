// A line that a reward program writes.
#pragma once

#include <string_view>

#include "mantissa/text/reward/rule.h"

namespace mantissa::reward {

/// Returns the score in {"reward": NUMBER, "parts": {"NAME": NUMBER, …}}, where `parts` may be absent or null
/// and other fields are ignored. Numbers must be finite as f32. Throws ConfigError, whose message begins with
/// a verb ("is not JSON …", "has no …"), for anything else, and for arrays and objects more than kMostNested
/// deep.
Score parse_reply(std::string_view line);

inline constexpr int kMostNested = 64;

}  // namespace mantissa::reward
