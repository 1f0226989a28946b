// Texts that end before a stop string: of parts of a text, and of ids.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mantissa/core/base/error.h"
#include "mantissa/text/tokenizer/growing_text.h"
#include "mantissa/text/tokenizer/stop_text.h"
#include "text/rows/temp_files.h"

namespace mantissa::tokenizer {
namespace {

using Ids = std::vector<std::int32_t>;

/// Returns what passes when `text` comes in parts of `size` bytes.
std::string passed(const std::vector<std::string>& stops, const std::string& text, std::size_t size,
                   bool* stopped = nullptr) {
  StopText stop(stops);
  std::string out;
  for (std::size_t at = 0; at < text.size() && !stop.stopped(); at += size)
    out += stop.push(text.substr(at, size));
  if (stopped != nullptr) *stopped = stop.stopped();
  return out + stop.finish();
}

TEST(StopText, EndsBeforeTheFirstStopStringHoweverTheTextComes) {
  const std::string text = "one\n\nUse: two END three";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    bool stopped = false;
    EXPECT_EQ(passed({"END", "User:"}, text, size, &stopped), "one\n\nUse: two ");
    EXPECT_TRUE(stopped);
    EXPECT_EQ(passed({"\n\nUser:", "zzz"}, text, size, &stopped), text);
    EXPECT_FALSE(stopped);
  }
  EXPECT_EQ(passed({"aab"}, "aaab", 1), "a") << "a beginning may begin within another";
  EXPECT_EQ(passed({}, text, 3), text);
}

TEST(StopText, HoldsBackOnlyWhatMayBecomeAStopString) {
  StopText stop({"\n\n"});
  EXPECT_EQ(stop.found(), "");
  EXPECT_EQ(stop.push("a\n"), "a");
  EXPECT_EQ(stop.push("b"), "\nb");
  EXPECT_EQ(stop.push("\n"), "");
  EXPECT_EQ(stop.push("\nc"), "");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.found(), "\n\n");
  EXPECT_EQ(stop.push("d"), "");
  EXPECT_THROW(StopText({"a", ""}), ConfigError);
}

/// A vocabulary with each byte as id 1 + byte, and tokens that cross the borders of a stop string. Id 0 ends
/// a text.
class GrowingTexts : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string lines;
    for (int byte = 0; byte < 256; ++byte) lines += fmt::format("{} b'\\x{:02x}' 1\n", byte + 1, byte);
    lines += "257 '.\\n' 2\n258 '\\nUs' 3\n259 'er: b' 5\n260 b'er:\\xe2\\x82' 5\n";
    tokenizer = make_tokenizer(files.write("rwkv_vocab_test.txt", lines));
  }
  GrowingText text(SpecialTokens special = SpecialTokens::left_out) const {
    return {*tokenizer, {"\n\nUser:"}, special};
  }

  text::TempFiles files;
  std::unique_ptr<Tokenizer> tokenizer;
};

TEST_F(GrowingTexts, StopAtTheTokenThatCompletesAStopString) {
  GrowingText growing = text();
  EXPECT_EQ(growing.push(1 + 'a'), "a");
  EXPECT_EQ(growing.push(257), ".") << "the line feed may begin the stop string";
  EXPECT_EQ(growing.push(258), "");
  EXPECT_FALSE(growing.stopped());
  EXPECT_EQ(growing.push(259), "");
  EXPECT_TRUE(growing.stopped());
  EXPECT_EQ(growing.found(), "\n\nUser:");
  EXPECT_EQ(growing.finish(Ids{1 + 'c'}), "") << "nothing follows a stop string";
}

TEST_F(GrowingTexts, StopBeforeACharacterThatTheTokenLeavesIncomplete) {
  GrowingText growing = text();
  for (const std::int32_t id : {257, 258}) growing.push(id);
  EXPECT_EQ(growing.push(260), "");
  EXPECT_TRUE(growing.stopped());
}

TEST_F(GrowingTexts, KeepAnIncompleteCharacterAndTheBeginningOfAStopString) {
  EXPECT_EQ(text().finish(Ids{257, 258}), ".\n\nUs");
  EXPECT_EQ(text().finish(Ids{1 + 0xe2, 1 + 0x82}), "\xe2\x82");
  EXPECT_EQ(text().finish(Ids{1 + 0xe2, 1 + '\n', 258, 259}), "\xe2")
      << "bytes that never become a character";
  GrowingText growing = text();
  growing.push(1 + 0xe2);
  for (const std::int32_t id : {1 + '\n', 258, 259}) growing.push(id);
  EXPECT_TRUE(growing.stopped());
}

TEST_F(GrowingTexts, SkipUnknownIdsAndSpecialTokensWithinAStopString) {
  EXPECT_EQ(text().finish(Ids{1 + 'a', 1 + '\n', 0, 999, 258, -1, 259}), "a");
  GrowingText kept = text(SpecialTokens::kept);
  EXPECT_EQ(kept.finish(Ids{1 + 'a', 0, 1 + 'b'}), "ab") << "this special token has no text";
}

}  // namespace
}  // namespace mantissa::tokenizer
