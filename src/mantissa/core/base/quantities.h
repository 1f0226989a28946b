// Quantities in human-readable form.
#pragma once

#include <string>

namespace mantissa {

/// Returns for example "96.2 MB".
std::string human_bytes(double bytes);

/// Returns for example "2.4 s" or "12 min".
std::string human_seconds(double seconds);

/// Returns a share as "97 %", with one digit more below 10 % and between 99 and 100 %, and as "0.004 %"
/// and "99.96 %". Only 1 is "100 %".
std::string percent_text(double share);

/// Returns a number of parameters: "850K", "24.1M", "1.24B".
std::string parameters_text(double count);

}  // namespace mantissa
