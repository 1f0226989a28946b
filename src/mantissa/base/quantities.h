// Quantities as people read them.
#pragma once

#include <string>

namespace mantissa {

/// "96.2 MB"
std::string human_bytes(double bytes);

/// "2.4 s", "12 min"
std::string human_seconds(double seconds);

}  // namespace mantissa
