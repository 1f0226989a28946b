#include "mantissa/text/tokenizer/characters.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mantissa::text {
namespace {

std::vector<char32_t> decoded(std::string_view text) {
  std::vector<char32_t> points;
  for (std::size_t at = 0; at < text.size();) points.push_back(decode_utf8(text, at));
  return points;
}

TEST(Utf8, DecodesSequencesOfOneToFourBytes) {
  EXPECT_EQ(decoded("a\u00e9\u20ac\U0001f600"), (std::vector<char32_t>{U'a', 0xe9, 0x20ac, 0x1f600}));
}

TEST(Utf8, InvalidBytesGiveOneReplacementEach) {
  const char32_t r = kReplacement;
  EXPECT_EQ(decoded("\xff"), (std::vector<char32_t>{r}));
  EXPECT_EQ(decoded("\x80z"), (std::vector<char32_t>{r, U'z'}));          // continuation without a start
  EXPECT_EQ(decoded("\xe2\x82"), (std::vector<char32_t>{r, r}));          // truncated by the end
  EXPECT_EQ(decoded("\xe2(z"), (std::vector<char32_t>{r, U'(', U'z'}));   // truncated by a letter
  EXPECT_EQ(decoded("\xc0\x80"), (std::vector<char32_t>{r, r}));          // overlong
  EXPECT_EQ(decoded("\xed\xa0\x80"), (std::vector<char32_t>{r, r, r}));   // surrogate
  EXPECT_EQ(decoded("\xf4\x90\x80\x80"), (std::vector<char32_t>(4, r)));  // beyond U+10FFFF
  EXPECT_EQ(find_invalid_utf8("caf\u00e9 \xff"), 6U);
  EXPECT_EQ(find_invalid_utf8("caf\u00e9"), std::string_view::npos);
}

TEST(UnicodeClasses, WordsAreLettersNumbersAndTheUnderscoreOfAnyScript) {
  for (const char32_t c : U"azAZ09_\u00e9\u03b1\u0416\u4e2d\u0663\u00bd\u2167\U0001d49c") {
    EXPECT_EQ(is_word(c), c != 0) << std::hex << static_cast<unsigned>(c);
  }
  // Apostrophe, hyphen, quotes, dashes, a combining accent, an emoji, spaces.
  for (const char32_t c : U"'-.,()\u2019\u201c\u2014\u0301\u00a0\u3000\U0001f600\ufffd") {
    EXPECT_FALSE(is_word(c)) << std::hex << static_cast<unsigned>(c);
  }
}

TEST(UnicodeClasses, LettersAreThoseOfAnyScriptWithoutNumbers) {
  for (const char32_t c : {U'a', U'Z', U'\u00e9', U'\u0416', U'\u4e2d', U'\u00df', U'\u01c5', U'\u02b0'})
    EXPECT_TRUE(is_letter(c)) << std::hex << static_cast<unsigned>(c);
  for (const char32_t c : {U'_', U'1', U'\u0663', U'\u00bd', U'\u2167', U'\u0301', U' ', U'\ufffd', U'-'})
    EXPECT_FALSE(is_letter(c)) << std::hex << static_cast<unsigned>(c);
}

TEST(UnicodeClasses, AllCasesOfALetterAreAlike) {
  const std::u32string_view alike[] = {
      U"aA",           U"iI\u0130\u0131",     U"sS\u017f",           U"kK\u212a", U"\u00e9\u00c9",
      U"\u0436\u0416", U"\u03c3\u03c2\u03a3", U"\u01c6\u01c5\u01c4", U"\u4e2d",   U"\u00b5\u03bc\u039c"};
  for (const std::u32string_view letters : alike) {
    for (const char32_t c : letters)
      EXPECT_EQ(caseless(c), caseless(letters.front())) << std::hex << static_cast<unsigned>(c);
  }
  EXPECT_NE(caseless(U'e'), caseless(U'\u00e9'));
  EXPECT_NE(caseless(U'1'), caseless(U'\u00b9'));
}

TEST(UnicodeClasses, WhiteSpaceIncludesTheInformationSeparators) {
  int count = 0;
  for (char32_t c = 0; c <= 0x10ffff; ++c) count += is_space(c) ? 1 : 0;
  EXPECT_EQ(count, 29);  // the 25 of property White_Space and U+001C to U+001F
  for (const char32_t c : {U' ', U'\t', U'\n', U'\u00a0', U'\u2009', U'\u3000', U'\u0085'})
    EXPECT_TRUE(is_space(c));
  EXPECT_FALSE(is_space(U'\u200b'));  // zero width space is not white space
}

}  // namespace
}  // namespace mantissa::text
