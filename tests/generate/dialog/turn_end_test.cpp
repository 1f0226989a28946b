// Answers that end at the text with which a chat template ends a turn.
#include "mantissa/generate/dialog/turn_end.h"

#include <gtest/gtest.h>

#include <string_view>

namespace mantissa::dialog {
namespace {

constexpr std::string_view kTurnEnd = "\n\nUser:";

class TurnEnds : public ::testing::Test {
 protected:
  data::ChatFormat format(const std::string& name) const { return {{}, name, "--template", *bytes}; }
  /// Returns whether the answer to `request` goes on after each byte of `text`, as '1' or '0'.
  static std::string goes_on(const rollout::OnToken& on_token, std::size_t request, std::string_view text) {
    std::string all;
    for (const char c : text) all += on_token(request, static_cast<unsigned char>(c), 0) ? '1' : '0';
    return all;
  }

  std::unique_ptr<tokenizer::Tokenizer> bytes = tokenizer::make_tokenizer("byte");
};

TEST_F(TurnEnds, EndEachAnswerAtTheTokenThatCompletesTheText) {
  const data::ChatFormat rwkv = format("rwkv");
  const rollout::OnToken on_token = until_turn_ends(*bytes, &rwkv, 2);
  EXPECT_EQ(goes_on(on_token, 0, "a\n\nUs"), "11111");
  EXPECT_EQ(goes_on(on_token, 1, kTurnEnd), "1111110") << "an answer without a text";
  EXPECT_EQ(goes_on(on_token, 0, "er:"), "110") << "of other answers, nothing counts";
}

TEST_F(TurnEnds, FindTheTextAfterAnIncompleteCharacter) {
  const data::ChatFormat rwkv = format("rwkv");
  EXPECT_EQ(goes_on(until_turn_ends(*bytes, &rwkv, 1), 0, "\xe2\x82\n\nUser:"), "111111110");
}

TEST_F(TurnEnds, AreThoseOfIdsUnderOtherTemplates) {
  const data::ChatFormat chatml = format("chatml");
  EXPECT_FALSE(until_turn_ends(*bytes, &chatml, 1));
  EXPECT_FALSE(until_turn_ends(*bytes, nullptr, 1));
}

}  // namespace
}  // namespace mantissa::dialog
