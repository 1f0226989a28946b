#include "mantissa/core/base/printable.h"

#include <fmt/format.h>

namespace mantissa {
namespace {

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

/// True for characters that move the cursor, end a line or change the direction of the text after them.
bool changes_others(char32_t c) {
  const bool control = c < 0x20 || (c >= 0x7f && c <= 0x9f);
  const bool line = c == 0x2028 || c == 0x2029;
  const bool direction = c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
                         (c >= 0x2066 && c <= 0x2069);
  return control || line || direction;
}

/// Returns the length of the UTF-8 character at the beginning of `text`, which `code_point` receives, or 0 if
/// the bytes are not UTF-8.
std::size_t first_character(std::string_view text, char32_t& code_point) {
  const unsigned char first = byte_at(text, 0);
  const std::size_t length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (length == 0 || first > 0xf4 || text.size() < length) return 0;
  char32_t c = length == 1 ? first : first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, i) & 0xc0U) != 0x80U) return 0;
    c = c << 6U | (byte_at(text, i) & 0x3fU);
  }
  const bool overlong = (length == 3 && c < 0x800) || (length == 4 && c < 0x10000);
  if (overlong || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0;
  code_point = c;
  return length;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    char32_t c = 0;
    const std::size_t length = first_character(text, c);
    if (length == 0 || (length == 1 && changes_others(c))) {
      out += fmt::format("\\x{:02x}", byte_at(text, 0));
    } else if (changes_others(c)) {
      out += fmt::format("\\u{{{:x}}}", static_cast<std::uint32_t>(c));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string name_in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 120;
  const auto character_start = [&](std::size_t at) {  // moves to the start of a UTF-8 character
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
    return at;
  };
  std::string shown(text);
  if (text.size() > kShown) {
    shown = fmt::format("{}...{}", text.substr(0, character_start(80)),
                        text.substr(character_start(text.size() - 30)));
  }
  return '"' + printable(shown) + '"';
}

}  // namespace mantissa
