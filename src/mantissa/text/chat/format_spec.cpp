#include "mantissa/text/chat/format_spec.h"

#include <fmt/format.h>

#include <cmath>

#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/print.h"
#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {

namespace {

std::string pad(const FormatSpec& spec, const std::string& sign, const std::string& body, char preset,
                Meter& meter) {
  const std::size_t size = unicode::length(sign) + unicode::length(body);
  const auto width = static_cast<std::size_t>(spec.width);
  if (size >= width) return sign + body;
  const std::size_t missing = width - size;
  meter.allocate(missing * spec.fill.size());
  const auto fill = [&](std::size_t n) {
    std::string out;
    for (std::size_t i = 0; i < n; ++i) out += spec.fill;
    return out;
  };
  switch (spec.align ? spec.align : preset) {
    case '<':
      return sign + body + fill(missing);
    case '^':
      return fill(missing / 2) + sign + body + fill(missing - missing / 2);
    case '=':
      return sign + fill(missing) + body;
    default:
      return fill(missing) + sign + body;
  }
}

std::string group_thousands(const std::string& digits) {
  std::size_t whole = 0;
  while (whole < digits.size() && digits[whole] >= '0' && digits[whole] <= '9') ++whole;
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string sign_of(const FormatSpec& spec, bool negative) {
  return negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
}

}  // namespace

std::int64_t read_number(std::string_view text, std::size_t& at) {
  std::int64_t n = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    n = n * 10 + (text[at++] - '0');
    if (n > kWidestField) throw Fault("a format has too large a width");
  }
  return n;
}

std::string format_integer(const FormatSpec& spec, std::int64_t n, Meter& meter) {
  const std::uint64_t magnitude = n < 0 ? 0 - static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n);
  std::string body, prefix;
  switch (spec.type) {
    case 'x':
      body = fmt::format("{:x}", magnitude), prefix = "0x";
      break;
    case 'X':
      body = fmt::format("{:X}", magnitude), prefix = "0X";
      break;
    case 'o':
      body = fmt::format("{:o}", magnitude), prefix = "0o";
      break;
    case 'b':
      body = fmt::format("{:b}", magnitude), prefix = "0b";
      break;
    default:
      body = std::to_string(magnitude);
  }
  if (spec.grouping) body = group_thousands(body);
  return pad(spec, sign_of(spec, n < 0) + (spec.alternate ? prefix : ""), body, '>', meter);
}

std::string format_real(const FormatSpec& spec, double d, Meter& meter) {
  if (spec.precision > 10000) throw Fault("a format has too large a precision");
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const double magnitude = std::fabs(d);
  std::string body;
  switch (spec.type) {
    case 'e':
      body = fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'E':
      body = fmt::format("{:.{}E}", magnitude, precision);
      break;
    case 'g':
      body = fmt::format("{:.{}g}", magnitude, precision == 0 ? 1 : precision);
      break;
    case 'G':
      body = fmt::format("{:.{}G}", magnitude, precision == 0 ? 1 : precision);
      break;
    case '%':
      body = fmt::format("{:.{}f}%", magnitude * 100, precision);
      break;
    case '\0':
      if (spec.precision >= 0)
        throw Fault("a precision without a type is not supported for numbers. Fix: add 'f' or 'g'");
      body = repr_real(magnitude);
      break;
    default:
      body = fmt::format("{:.{}f}", magnitude, precision);
  }
  if (spec.grouping) body = group_thousands(body);
  return pad(spec, sign_of(spec, std::signbit(d) && !std::isnan(d)), body, '>', meter);
}

std::string format_text(const FormatSpec& spec, std::string text, Meter& meter) {
  if (spec.precision >= 0)
    text = text.substr(0, unicode::offset(text, static_cast<std::size_t>(spec.precision)));
  return pad(spec, "", text, '<', meter);
}

}  // namespace mantissa::chat
