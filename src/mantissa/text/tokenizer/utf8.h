// UTF-8: lengths, code points, and repair of text that is not UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mantissa::tokenizer {

/// Replaces bytes that are not UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Returns the number of bytes of the code point with this first byte. The text must be UTF-8.
inline std::size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// Returns the code point at byte `at` and moves `at` past it. The text must be UTF-8.
char32_t next_code_point(std::string_view text, std::size_t& at);

/// Appends a code point.
void append_utf8(char32_t point, std::string& text);

/// Returns the number of bytes at the end of `text` that begin a code point without completing it: 0 to 3.
std::size_t incomplete_tail(std::string_view text);

/// Returns `text` if it is UTF-8. Otherwise stores a copy in `repaired` and returns that: each maximal prefix
/// of a sequence that is not UTF-8 becomes one U+FFFD, as in the WHATWG encoding standard, Python and Rust.
std::string_view repair_utf8(std::string_view text, std::string& repaired);

}  // namespace mantissa::tokenizer
