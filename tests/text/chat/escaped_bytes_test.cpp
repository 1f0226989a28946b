#include "mantissa/text/chat/escaped_bytes.h"

#include <gtest/gtest.h>

#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {
namespace {

TEST(EscapedBytes, AreRestoredFromValidUtf8) {
  const std::string_view texts[] = {"h\xC3\xA9 \xE3\x81", "\xF0\x9F\x98", "\xFF\x80\xED\xA0\x80z",
                                    "caf\xC3\xA9", ""};
  const EscapedBytes bytes(texts);
  for (const std::string_view text : texts) {
    const std::string escaped = bytes.escape(text);
    EXPECT_TRUE(unicode::valid(escaped)) << text;
    EXPECT_EQ(bytes.restore(escaped), text);
    EXPECT_EQ(escaped == text, unicode::valid(text)) << "only other text changes";
  }
}

TEST(EscapedBytes, KeepPrivateUseCharactersOfTheTexts) {
  std::string text = "\xE3";
  for (const char32_t c : {U'\x100000', U'\x1000E3', U'\x100100', U'\x10FFFD'}) unicode::append(text, c);
  const std::string_view texts[] = {text};
  const EscapedBytes bytes(texts);
  EXPECT_EQ(bytes.restore(bytes.escape(text)), text);
}

}  // namespace
}  // namespace mantissa::chat
