#include "mantissa/text/chat/string_literal.h"

#include <charconv>

#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {

namespace {

// Appends the code point of `digits` hexadecimal digits at `at`, and returns the place after them.
std::size_t append_hex(std::string& out, std::string_view literal, std::size_t at, std::size_t digits) {
  std::uint32_t code = 0;
  const std::string_view hex = literal.substr(std::min(at, literal.size()), digits);
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
  if (hex.size() < digits || error != std::errc() || end != hex.data() + hex.size()) {
    throw Fault("an escape sequence needs {} hexadecimal digits", digits);
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    throw Fault("U+{:04X} is not a character that UTF-8 can hold. Fix: write the character itself", code);
  }
  unicode::append(out, code);
  return at + digits;
}

}  // namespace

std::string unescape_string(std::string_view literal) {
  static constexpr std::string_view kLetters = "abfnrtv\\'\"";
  static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
  std::string out;
  out.reserve(literal.size());
  for (std::size_t i = 0; i < literal.size();) {
    if (literal[i] != '\\' || i + 1 >= literal.size()) {
      out += literal[i++];
      continue;
    }
    const char c = literal[i + 1];
    i += 2;
    if (const std::size_t k = kLetters.find(c); k != std::string_view::npos) {
      out += kMeanings[k];
    } else if (c == '\n') {
      // A backslash before a line end joins the lines.
    } else if (c >= '0' && c <= '7') {
      std::uint32_t code = 0;
      std::size_t n = 0;
      for (--i; n < 3 && i < literal.size() && literal[i] >= '0' && literal[i] <= '7'; ++n) {
        code = code * 8 + static_cast<std::uint32_t>(literal[i++] - '0');
      }
      unicode::append(out, code);
    } else if (c == 'x') {
      i = append_hex(out, literal, i, 2);
    } else if (c == 'u') {
      i = append_hex(out, literal, i, 4);
    } else if (c == 'U') {
      i = append_hex(out, literal, i, 8);
    } else if (c == 'N') {
      throw Fault("\\N{…} is not supported. Fix: write the character itself");
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace mantissa::chat
