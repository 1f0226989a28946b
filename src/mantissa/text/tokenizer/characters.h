// UTF-8 decoding and the character classes that this library needs: white space, letters, parts of words.
#pragma once

#include <cstddef>
#include <string_view>

namespace mantissa::text {

/// Replaces bytes that are not UTF-8. It is neither white space nor part of a word.
inline constexpr char32_t kReplacement = 0xfffd;

/// Returns the code point whose UTF-8 form starts at byte `at` < text.size(), and moves `at` past it. Bytes
/// that are not UTF-8 (including overlong forms, surrogates and truncated sequences) give kReplacement, one
/// byte at a time.
char32_t decode_utf8(std::string_view text, std::size_t& at);

/// Returns the position of the first byte that is not UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);

/// True for white space: property White_Space, and the separators U+001C to U+001F.
bool is_space(char32_t c);

/// True for parts of words: letters and numbers of any script (categories L and N, Unicode 14.0), and '_'.
bool is_word(char32_t c);

/// True for letters of any script (category L).
bool is_letter(char32_t c);

/// Returns a character that is the same for all cases of a letter: the lower case of its upper case, each of
/// one character. So "I", "i", U+0130 and U+0131 are alike, and so are the three forms of sigma, as under
/// re.IGNORECASE of Python.
char32_t caseless(char32_t c);

}  // namespace mantissa::text
