// Writes one value into a field, for the operator % and str.format.
#pragma once

#include <string>
#include <string_view>

#include "mantissa/text/chat/meter.h"

namespace mantissa::chat {

/// The largest width of a field.
inline constexpr std::int64_t kWidestField = 10'000'000;

/// The format of one value.
struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // < > ^ or =, or none
  char sign = '-';
  bool alternate = false;
  std::int64_t width = 0;
  bool grouping = false;
  std::int64_t precision = -1;
  char type = '\0';
};

/// Reads digits at `at` and moves it behind them. Throws a Fault beyond kWidestField.
std::int64_t read_number(std::string_view text, std::size_t& at);
std::string format_integer(const FormatSpec& spec, std::int64_t n, Meter& meter);
std::string format_real(const FormatSpec& spec, double d, Meter& meter);
std::string format_text(const FormatSpec& spec, std::string text, Meter& meter);

}  // namespace mantissa::chat
