// The escape sequences of string literals.
#pragma once

#include <string>
#include <string_view>

namespace mantissa::chat {

/// Returns the string that a literal without its quotation marks denotes. Unknown escapes keep their
/// backslash. Throws a Fault.
std::string unescape_string(std::string_view literal);

}  // namespace mantissa::chat
