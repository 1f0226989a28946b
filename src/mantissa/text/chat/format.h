// Formatting: the operator %, str.format and strftime.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "mantissa/text/chat/value.h"

namespace mantissa::chat {

/// Returns `format % argument`. A tuple gives several arguments, a dict the named ones.
std::string format_percent(std::string_view format, const Value& argument, Meter& meter);
/// Returns `format.format(…)`.
std::string format_braces(Interpreter& in, std::string_view format, Arguments& arguments);

/// A local time.
struct LocalTime {
  std::tm calendar = {};
  int microsecond = 0;
};
/// Returns datetime.strftime(format) in English.
std::string format_time(std::string_view format, const LocalTime& time);

}  // namespace mantissa::chat
