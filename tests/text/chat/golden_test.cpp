// Expressions, statements and the built-in templates give what transformers gives.
#include "text/chat/golden.h"
#include "mantissa/text/chat/templates.h"

namespace mantissa::chat {
namespace {

TEST(ChatGolden, ExpressionsAndStatementsRenderAsInJinja) {
  const auto golden = read_golden("expressions.json");
  ASSERT_GT(golden["rows"].size(), 2000u);
  for (const auto& row : golden["rows"])
    expect_row(row["template"].get<std::string>(), golden["context"], row);
}

TEST(ChatGolden, BuiltinTemplatesRenderTheFormatsOfTheirModels) {
  const auto golden = read_golden("conversations.json");
  ASSERT_GT(golden.size(), 100u);
  for (const auto& row : golden) {
    const auto source = builtin_template(row["template"].get<std::string>());
    ASSERT_TRUE(source);
    const nlohmann::ordered_json tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    expect_row(std::string(*source),
               chat_context(row["messages"], row["add_generation_prompt"].get<bool>(), tokens), row);
  }
}

TEST(ChatGolden, BuiltinTemplatesMarkWhatTheAssistantSays) {
  const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", "Hi"}},
                                           {{"role", "assistant"}, {"content", "Grüße"}}};
  const std::pair<std::string, std::string> expected[] = {
      {"chatml", "Grüße<|im_end|>"}, {"llama3", "Grüße<|eot_id|>"},   {"qwen", "Grüße<|im_end|>"},
      {"mistral", " Grüße</s>"},     {"gemma", "Grüße<end_of_turn>"}, {"rwkv", " Grüße"}};
  for (const auto& [name, said] : expected) {
    const Template chat = Template::parse(*builtin_template(name), name);
    const Rendered r =
        chat.render(chat_context(messages, false, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
    ASSERT_EQ(r.generations.size(), 1u) << name;
    EXPECT_EQ(r.text.substr(r.generations[0].first, r.generations[0].second - r.generations[0].first), said);
    EXPECT_FALSE(r.lost_generation);
  }
  EXPECT_EQ(builtin_template_names().size(), std::size(expected));
}

}  // namespace
}  // namespace mantissa::chat
