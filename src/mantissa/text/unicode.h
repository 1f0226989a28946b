// What the room needs of Unicode: code points from UTF-8, and which are white space or parts of words.
#pragma once

#include <cstddef>
#include <string_view>

namespace mantissa::text {

/// Stands for bytes that are not UTF-8; neither white space nor part of a word.
inline constexpr char32_t kReplacement = 0xfffd;

/// The code point whose UTF-8 form starts at byte `at` < text.size(); `at` moves behind it. Bytes that are
/// not UTF-8 (overlong forms, surrogates and cut sequences too) give kReplacement, one byte at a time.
char32_t decode_utf8(std::string_view text, std::size_t& at);

/// The place of the first byte that is not UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);

/// White space: property White_Space, and the separators U+001C to U+001F.
bool is_space(char32_t c);

/// Part of a word: a letter or number of any script (categories L and N, Unicode 14.0), or '_'.
bool is_word(char32_t c);

}  // namespace mantissa::text
