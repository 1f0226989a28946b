// Text of unknown origin for a terminal or a log.
#pragma once

#include <string>
#include <string_view>

#include "mantissa/core/base/printable.h"

namespace mantissa {

/// Returns `text` with an escape sequence for everything that could change the surrounding text: "\x1b" for a
/// control character or a byte that is not UTF-8, "\u{202e}" for other control characters, line separators
/// and marks of direction. The result is UTF-8, one line, and equal to `text` if that is harmless.
std::string printable(std::string_view text);

/// Returns the name of a file or tensor in double quotes, printable; the middle of a long one is cut, since
/// its end tells most.
std::string name_in_quotes(std::string_view text);

}  // namespace mantissa
