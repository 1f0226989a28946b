// The properties of code points that tokenizers use. Each table has the Unicode version that the library
// `tokenizers` has in the same place, so that ids agree for every code point.
#pragma once

#include <span>
#include <string_view>

namespace mantissa::tokenizer {

/// A range of code points whose general category is newer than Unicode 14.0.
struct NewerCategory {
  char32_t first, last;
  const char* category;  // "Lu"
};

/// Returns the changes from Unicode 14.0 to 16.0.
std::span<const NewerCategory> newer_categories();

/// Returns the general category in Unicode 16.0: "Lu".
std::string_view category(char32_t point);

/// True for White_Space (all versions).
bool is_space(char32_t point);
/// True for the categories Nd, Nl and No (Unicode 17.0).
bool is_number(char32_t point);
/// True for ASCII punctuation and symbols and the categories P* (Unicode 8.0).
bool is_punctuation(char32_t point);
/// True for the categories M* as in the tables of normal forms.
bool is_mark(char32_t point);
/// True for Mn (Unicode 8.0).
bool is_nonspacing_mark(char32_t point);
/// True for Cc, Cf and Co (Unicode 8.0).
bool is_control(char32_t point);
/// True if the tables of normal forms do not have this code point: it is left as it is.
bool is_later_than_forms(char32_t point);
/// Returns the lower-case code point. U+0130 is the only one whose lower case is longer; see kDottedI.
char32_t to_lower(char32_t point);
inline constexpr char32_t kDottedI = 0x130;
inline constexpr std::string_view kDottedILower = "i\xCC\x87";

}  // namespace mantissa::tokenizer
