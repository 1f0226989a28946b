// The library's version.
#pragma once

#include <string>

namespace mantissa::api {

/// "0.1.0"
std::string version();

}  // namespace mantissa::api
