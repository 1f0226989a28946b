// Text of unknown origin: what could change a terminal is escaped, everything else stays.
#include "mantissa/core/base/printable.h"

#include <gtest/gtest.h>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"

namespace mantissa {
namespace {

TEST(Printable, KeepsHarmlessTextOfAnyScript) {
  for (const char* text :
       {"", "model.layers.0.weight", "a b\\c \"d\"", "größe 素早い Ω 👍", "\u00a0\u0378\U0010ffff"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(printable("a\x1b[31m\r\n\tb\x7f"), R"(a\x1b[31m\x0d\x0a\x09b\x7f)");
  EXPECT_EQ(printable(std::string_view("\0x", 2)), R"(\x00x)");
  EXPECT_EQ(printable("\u0085\u009b1m"), R"(\u{85}\u{9b}1m)") << "C1";
  EXPECT_EQ(printable("a\u202egnp.\u2066\u2028\u200f"), R"(a\u{202e}gnp.\u{2066}\u{2028}\u{200f})");
}

TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("a\xff\xc3"), R"(a\xff\xc3)");
  EXPECT_EQ(printable("\xc0\x9b|\xe0\x80\x9b|\xf0\x80\x80\x9b"), R"(\xc0\x9b|\xe0\x80\x9b|\xf0\x80\x80\x9b)")
      << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80|\xf4\x90\x80\x80|\x9b"), R"(\xed\xa0\x80|\xf4\x90\x80\x80|\x9b)");
  EXPECT_EQ(printable("\xe2\x82|\xe2\x82\xac"), "\\xe2\\x82|€");
}

TEST(Printable, OfAnyBytesIsOneLineWithoutControlsAndStaysAsItIs) {
  std::string text;
  for (unsigned seed = 1, i = 0; i < 100'000; ++i) {
    seed = seed * 1664525U + 1013904223U;
    text += static_cast<char>(seed >> 24U);
  }
  const std::string shown = printable(text);
  for (const char c : shown) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  EXPECT_EQ(printable(shown), shown);
}

TEST(Printable, MessagesOfErrorsAndQuotesAre) {
  const ConfigError e("tensor \x1b[2J\nx: is wrong", {{{"--set", "a=\tb"}}});
  EXPECT_EQ(e.message(), R"(tensor \x1b[2J\x0ax: is wrong)");
  EXPECT_EQ(std::string(e.what()).find('\x1b'), std::string::npos);
  EXPECT_EQ(in_quotes("a\xffz\u202e"), R"("a\xffz\u{202e}")");
}

}  // namespace
}  // namespace mantissa
