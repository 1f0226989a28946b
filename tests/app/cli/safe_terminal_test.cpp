#include "mantissa/app/cli/safe_terminal.h"

#include <gtest/gtest.h>

namespace mantissa::cli {
namespace {

std::string shown(std::string_view text, bool erases = false) {
  return safe_for_terminal(text, true, erases);
}

TEST(SafeTerminal, WritesOutWhatATerminalWouldObey) {
  EXPECT_EQ(shown("\x1b]0;title\x07 text"), "\\x1b]0;title\\x07 text");
  EXPECT_EQ(shown("\x1b[2J\x1b[1;1H"), "\\x1b[2J\\x1b[1;1H");
  EXPECT_EQ(shown("a\rb"), "a\\x0db");
  EXPECT_EQ(shown("\u202egnp.exe"), "\\u{202e}gnp.exe");
  EXPECT_EQ(shown("\xff\xc3("), "\\xff\\xc3(");
  EXPECT_EQ(shown("\r\x1b[K"), "\\x0d\\x1b[K");
}

TEST(SafeTerminal, KeepsLinesTabsColoursAndOtherText) {
  for (const char* text : {"a line\n\tand one more\n", "\x1b[1;31mred\x1b[0m", "Grüße, 世界 🙂"})
    EXPECT_EQ(shown(text), text);
  EXPECT_EQ(shown("\r\x1b[K 12", true), "\r\x1b[K 12");
}

TEST(SafeTerminal, TakesCharactersAndSequencesInParts) {
  const std::string text = "é\x1b[1;33m🙂\x1b[0m\r\x1b[Kx\n";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    std::string all, pending;
    for (const std::string& part : {text.substr(0, cut), text.substr(cut)}) {
      pending += part;
      std::string_view rest = pending;
      all += safe_for_terminal(rest, false, true);
      pending = std::string(rest);
    }
    EXPECT_EQ(all, text) << cut;
    EXPECT_EQ(pending, "");
  }
}

}  // namespace
}  // namespace mantissa::cli
