// Unicode as Python's str sees it: code points, whitespace, case, categories. All text is valid UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::chat::unicode {

/// Returns true if the bytes are valid UTF-8 (RFC 3629: no surrogates, no overlong forms).
bool valid(std::string_view bytes);
/// Returns the number of code points.
std::size_t length(std::string_view bytes);
/// Returns the number of bytes of the code point that begins at byte `at`.
std::size_t size_at(std::string_view bytes, std::size_t at);
/// Returns the code point that begins at byte `at`.
char32_t code_point_at(std::string_view bytes, std::size_t at);
void append(std::string& bytes, char32_t c);
std::vector<char32_t> code_points(std::string_view bytes);
/// Returns the byte offset of the code point with the given index.
std::size_t offset(std::string_view bytes, std::size_t index);

bool is_space(char32_t c);
/// Returns true for the characters that end a line for str.splitlines.
bool is_line_end(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_printable(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);

std::string lower(std::string_view bytes);
std::string upper(std::string_view bytes);
/// str.casefold.
std::string fold(std::string_view bytes);
/// str.title: each run of cased letters begins with a capital.
std::string title(std::string_view bytes);
/// str.capitalize.
std::string capitalize(std::string_view bytes);
std::string swapcase(std::string_view bytes);

/// The full mapping of a character whose upper or title case has several code points, or null.
struct SpecialCase {
  char32_t code;
  const char* upper;  // UTF-8
  const char* title;
};
const SpecialCase* special_case(char32_t c);

}  // namespace mantissa::chat::unicode
