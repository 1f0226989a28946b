// Numbers in lines of JSON.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace mantissa::report {

/// Returns `value` with at most `significant` digits, or null if it is not finite: JSON cannot represent it.
inline std::string json_number(double value, int significant) {
  return std::isfinite(value) ? fmt::format("{:.{}g}", value, significant) : "null";
}

}  // namespace mantissa::report
