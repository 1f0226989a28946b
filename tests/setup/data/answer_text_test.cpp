// The text of an answer: what the prompt begins, what the ids add, and the end of its turn.
#include "mantissa/setup/data/answer_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mantissa::data {
namespace {

TEST(AnswerText, HasItsBeginningAndNoEnd) {
  const auto bytes = tokenizer::make_tokenizer("byte");
  const auto prompt =
      prompt_text(*bytes, nullptr, text::read_prompt({{"prompt", "Q: <think>"}}, "row"), 256, "row");
  EXPECT_EQ(answer_text(*bytes, nullptr, prompt, {'a', 'b', 0}).text, "<think>ab") << "without the separator";
  EXPECT_EQ(answer_text(*bytes, nullptr, prompt, {'a', 0, 'b', 300}).text, std::string("<think>a\0b", 10))
      << "only at the end, and without ids that the tokenizer does not know";
  EXPECT_EQ(answer_text(*bytes, nullptr, prompt, {}).text, "<think>");
  const auto llama = tokenizer::make_tokenizer(MANTISSA_SOURCE_DIR "/tests/golden/sft/llama");
  const ChatFormat chatml({}, "chatml", "--template", *bytes);
  std::vector<std::int32_t> ids = llama->encode("our.");
  ASSERT_TRUE(llama->eos().has_value());
  ids.push_back(*llama->eos());
  PromptText none;
  EXPECT_EQ(answer_text(*llama, &chatml, none, ids).text, "our.");
}

TEST(AnswerText, EndsBeforeATextThatEndsTheTurn) {
  const auto bytes = tokenizer::make_tokenizer("byte");
  const ChatFormat rwkv({}, "rwkv", "--template", *bytes), chatml({}, "chatml", "--template", *bytes);
  const PromptText begun{{}, "Assistant:<think>\n", 10};
  const std::vector<std::int32_t> ids = bytes->encode(" Yes.\n\nUser:"),
                                  part = bytes->encode("\nUser: a\n\nUse");
  const auto answer = [&](const ChatFormat* format, const std::vector<std::int32_t>& added) {
    return answer_text(*bytes, format, begun, added);
  };
  EXPECT_EQ(answer(&rwkv, ids).text, "<think>\n Yes.");
  EXPECT_TRUE(answer(&rwkv, ids).ends_turn);
  EXPECT_EQ(answer(&rwkv, part).text, "<think>\n\nUser: a\n\nUse") << "the text begins in the answer's ids";
  EXPECT_FALSE(answer(&rwkv, part).ends_turn);
  for (const ChatFormat* format : {&chatml, static_cast<const ChatFormat*>(nullptr)}) {
    EXPECT_EQ(answer(format, ids).text, "<think>\n Yes.\n\nUser:");
    EXPECT_FALSE(answer(format, ids).ends_turn);
  }
}

}  // namespace
}  // namespace mantissa::data
