#include "mantissa/text/rows/conversation_row.h"

#include <gtest/gtest.h>

#include <fstream>

#include "mantissa/core/base/error.h"
#include "mantissa/text/puzzles/kk.h"
#include "mantissa/text/puzzles/kk_reward.h"
#include "mantissa/text/puzzles/logic_rl.h"
#include "text/rows/temp_files.h"

namespace mantissa::text {
namespace {

using Json = nlohmann::ordered_json;

ConversationRow read(const std::string& json) {
  return read_conversation(Json::parse(json), "f.jsonl:7");
}
std::string refusal(const std::string& json) {
  return error_of<FileError>([&] { read(json); });
}

TEST(ConversationRow, HasMessages) {
  const ConversationRow row = read(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "thinking": "c"}]})");
  EXPECT_EQ(row.messages.size(), 2U);
  EXPECT_EQ(row.messages[1]["thinking"], "c") << "other fields are the template's";
  EXPECT_FALSE(row.texts.has_value());
}

TEST(ConversationRow, OfShareGptGetsTheUsualNames) {
  const ConversationRow row =
      read(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})");
  EXPECT_EQ(row.messages,
            Json::parse(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])"));
}

TEST(ConversationRow, OfAPromptAndACompletionIsOneExchangeAndTwoTexts) {
  for (const char* json :
       {R"({"prompt": "a", "completion": "b"})", R"({"prompt": "a", "response": "b"})",
        R"({"question": "a", "answer": "b"})", R"({"instruction": "a", "input": "", "output": "b"})"}) {
    const ConversationRow row = read(json);
    EXPECT_EQ(row.messages,
              Json::parse(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])"));
    EXPECT_EQ(row.texts, std::pair(std::string("a"), std::string("b")));
  }
  EXPECT_EQ(read(R"({"instruction": "a", "input": "x", "output": "b"})").messages[0]["content"], "a\n\nx");
  EXPECT_EQ(read(R"({"system": "s", "prompt": "a", "completion": "b"})").messages.size(), 3U);
}

TEST(ConversationRow, MayHaveMessagesAsPromptAndCompletion) {
  const ConversationRow row = read(
      R"({"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}], "completion": "b"})");
  EXPECT_EQ(row.messages.size(), 3U);
  EXPECT_EQ(row.messages[2], Json::parse(R"({"role":"assistant","content":"b"})"));
  EXPECT_FALSE(row.texts.has_value());
}

TEST(ConversationRow, ThatIsNotOneIsRefusedWithItsPlaceAndField) {
  EXPECT_TRUE(has(refusal(R"({"text": "a", "id": 3})"), "f.jsonl:7: no conversation;"));
  EXPECT_TRUE(has(refusal(R"({"text": "a", "id": 3})"), "Its fields: text, id"));
  EXPECT_TRUE(has(refusal(R"({"prompt": "a"})"), "f.jsonl:7: no completion;"));
  EXPECT_TRUE(has(refusal(R"({"prompt": "a", "completion": null})"), "f.jsonl:7: no completion;"));
  EXPECT_TRUE(has(refusal(R"({"response": "a"})"), "f.jsonl:7: no prompt;"));
  EXPECT_TRUE(has(refusal(R"({"prompt": 3, "completion": "b"})"), "f.jsonl:7: \"prompt\" is a number"));
  EXPECT_TRUE(has(refusal(R"({"prompt": "a", "completion": {}})"), "\"completion\" is an object"));
  EXPECT_TRUE(has(refusal(R"({"messages": "a"})"), "\"messages\" is a string; expected an array"));
  EXPECT_TRUE(has(refusal(R"({"messages": []})"), "\"messages\" is empty"));
  EXPECT_TRUE(has(refusal(R"({"messages": [3]})"), "\"messages[0]\" is a number"));
  EXPECT_TRUE(has(refusal(R"({"messages": [{"content": "a"}]})"), "messages[0] has no \"role\""));
  EXPECT_TRUE(has(refusal(R"({"messages": [{"role": "user"}]})"), "messages[0] has no \"content\""));
  EXPECT_TRUE(has(refusal(R"({"messages": [{"role": "user", "content": 3}]})"),
                  "\"messages[0].content\" is a number"));
  EXPECT_TRUE(
      has(refusal(R"({"messages": [{"role": 1, "content": "a"}]})"), "\"messages[0].role\" is a number"));
  EXPECT_TRUE(
      has(refusal(R"({"input_ids": 3})"), "\"input_ids\" is a number; expected an array of integers"));
  EXPECT_TRUE(has(refusal(R"({"input_ids": []})"), "\"input_ids\" is empty"));
  EXPECT_TRUE(
      has(refusal(R"({"input_ids": [1, 2.5]})"), "element 1 of \"input_ids\" is not a 32-bit integer"));
  EXPECT_TRUE(has(refusal(R"({"input_ids": [1, 18446744073709551615]})"), "element 1 of \"input_ids\""));
  EXPECT_TRUE(has(refusal(R"({"input_ids": [1, 2], "labels": [1]})"),
                  "\"labels\" has 1 elements, and \"input_ids\" has 2"));
}

TEST(ConversationRow, OfIdsHasTheirLabels) {
  const ConversationRow labelled =
      read_conversation(Json{{"input_ids", {5, 6, 7}}, {"labels", {-100, -100, 7}}}, "f:1");
  EXPECT_TRUE(labelled.messages.empty());
  EXPECT_EQ(labelled.tokens.value().ids, (std::vector<std::int32_t>{5, 6, 7}));
  EXPECT_EQ(labelled.tokens.value().labels, (std::vector<std::int32_t>{-100, -100, 7}));
  const ConversationRow all = read_conversation(Json{{"input_ids", {5, 6}}, {"labels", nullptr}}, "f:1");
  EXPECT_EQ(all.tokens.value().labels, all.tokens.value().ids);
}

TEST(ConversationRow, IsDistinguishedFromADocument) {
  EXPECT_TRUE(is_conversation(Json::parse(R"({"messages": []})")));
  EXPECT_TRUE(is_conversation(Json::parse(R"({"prompt": "a", "completion": "b"})")));
  EXPECT_FALSE(is_conversation(Json::parse(R"({"text": "a", "prompt": "b"})")));
  EXPECT_TRUE(is_conversation(Json::parse(R"({"input_ids": [1, 2]})")));
  EXPECT_FALSE(is_conversation(Json::parse(R"({"tokens": 3})")));
}

// clang-format off
constexpr const char* kLogicRl = R"json({"quiz": "Who?", "names": ["Zoe", "Max"], "solution": [true, false],
  "solution_text_format": "(1) Zoe is a knight\n(2) Max is a knave",
  "statements": "(('lying', 1), ('and', ('telling-truth', 0), ('telling-truth', 1)))",
  "prompt": [{"role": "user", "content": "<|im_start|>system\nThink.<|im_end|>\n<|im_start|>user\nWho?\n<|im_end|>\n<|im_start|>assistant\n<think>"}],
  "reward_model": {"style": "rule"}})json";
// clang-format on

TEST(LogicRl, ARowBecomesItsMessagesAndAnAnswerWithTheFullReward) {
  const ConversationRow row = read(kLogicRl);
  ASSERT_EQ(row.messages.size(), 3U);
  EXPECT_EQ(row.messages[0], Json::parse(R"({"role":"system","content":"Think."})"));
  EXPECT_EQ(row.messages[1], Json::parse(R"({"role":"user","content":"Who?\n"})"));
  const auto answer = row.messages[2]["content"].get<std::string>();
  EXPECT_TRUE(answer.starts_with("<think>If ")) << answer;
  const auto& [prompt, completion] = *row.texts;
  EXPECT_EQ(prompt + completion, prompt.substr(0, prompt.size() - 7) + answer)
      << "the prompt has begun the answer";
  EXPECT_EQ(kk_reward(prompt + completion, "(1) Zoe is a knight\n(2) Max is a knave").total(), 3);
}

TEST(LogicRl, ARowAsksAPuzzle) {
  const ConversationRow row = read(kLogicRl);
  EXPECT_EQ(row.people, 2);
  Json plain = Json::parse(kLogicRl);
  plain.erase("names");
  plain["prompt"] = "Who is who?\nAssistant: <think>";
  EXPECT_EQ(read(plain.dump()).people, 2) << "the lines of the solution";
  EXPECT_EQ(read(plain.dump()).begun, "<think>");
  plain["completion"] = "an answer";
  EXPECT_EQ(read(plain.dump()).people, 0) << "it has an answer of its own";
}

TEST(LogicRl, WithoutStatementsTheRowsOwnStepsAreTheReasoning) {
  Json row = Json::parse(kLogicRl);
  row["statements"] = "(('lying', 1), ('perhaps', 0))";
  EXPECT_TRUE(
      read(row.dump()).messages[2]["content"].get<std::string>().starts_with("<think></think> <answer>"));
  row["cot_repeat_steps"] = {"Assume Zoe.", "Then Max."};
  row["cot_head"] = "First.";
  EXPECT_TRUE(read(row.dump())
                  .messages[2]["content"]
                  .get<std::string>()
                  .starts_with("<think>First. Assume Zoe. Then Max.</think> <answer>(1) Zoe is a knight\n"));
  row["statements"] = Json::parse(kLogicRl)["statements"];
  row["solution"] = {false, true};  // not that of the statements
  EXPECT_TRUE(has(read(row.dump()).messages[2]["content"].get<std::string>(), "<think>First."));
}

TEST(LogicRl, RowsOfTheGeneratorEndTheirPromptBeforeTheAnswer) {
  KkOptions options;
  options.count = 20;
  for (const KkStyle style : {KkStyle::brief, KkStyle::logic_rl}) {
    options.style = style;
    for (const KkPuzzle& puzzle : generate(options)) {
      const ConversationRow row = read(to_jsonl_row(puzzle));
      ASSERT_EQ(row.messages.size(), 2U);
      EXPECT_FALSE(row.messages[0]["content"].get<std::string>().ends_with(":")) << row.messages[0];
      EXPECT_EQ(row.texts->first + row.texts->second, puzzle.text());
    }
  }
}

TEST(LogicRl, StatementsAreReadOrRefused) {
  KkOptions options;
  options.count = 50;
  options.depth = 3;
  for (const KkPuzzle& puzzle : generate(options)) {
    const Json row = Json::parse(to_jsonl_row(puzzle));
    EXPECT_EQ(
        parse_kk_statements(row["statements"].get<std::string>(), static_cast<int>(puzzle.names.size())),
        puzzle.statements);
  }
  for (const char* text :
       {"", "(", "()", "(('lying', 0)", "(('lying', 2), ('lying', 0))", "(('lying', 0)) x", "(('not', 0))",
        "(('and', ('lying', 0)))", "(('nor', ('lying', 0), ('lying', 1)))"})
    EXPECT_TRUE(parse_kk_statements(text, 2).empty()) << text;
}

TEST(LogicRl, AFieldOfTheWrongTypeIsNamed) {
  Json row = Json::parse(kLogicRl);
  row["solution_text_format"] = 3;
  EXPECT_TRUE(has(refusal(row.dump()), "f.jsonl:7: \"solution_text_format\" is of type number"));
  row = Json::parse(kLogicRl);
  row["prompt"] = {{{"role", "user"}}};
  EXPECT_TRUE(has(refusal(row.dump()), "f.jsonl:7: \"prompt\" has an element without"));
}

TEST(PromptOfARow, EndsBeforeTheAnswer) {
  const auto prompt = [](const std::string& json) { return read_prompt(Json::parse(json), "f.jsonl:7"); };
  const Json user = Json::parse(R"([{"role":"user","content":"a"}])");
  for (const char* json :
       {R"({"prompt": "a"})", R"({"prompt": "a", "completion": "b"})", R"({"question": "a", "answer": 3})",
        R"({"instruction": "a", "input": null, "output": {}})"}) {
    const ConversationRow row = prompt(json);
    EXPECT_EQ(row.messages, user) << json;
    EXPECT_EQ(row.texts, std::pair(std::string("a"), std::string())) << json;
  }
  EXPECT_EQ(prompt(R"({"messages": [{"role": "user", "content": "a"}], "answer": "b"})").messages, user);
  EXPECT_FALSE(prompt(R"({"messages": [{"role": "user", "content": "a"}]})").texts);
  EXPECT_EQ(prompt(R"({"prompt": [{"role": "user", "content": "a"}], "completion": "b"})").messages, user);
  EXPECT_EQ(prompt(R"({"system": "s", "prompt": "a"})").texts->first, "s\n\na");
  EXPECT_EQ(prompt(R"({"prompt": "a", "tools": [{"name": "t"}]})").tools.size(), 1U);
  const ConversationRow logic =
      prompt(R"({"quiz": "q", "solution_text_format": "(1) A is a knight\n(2) B is a knave"})");
  EXPECT_EQ(logic.messages, Json::parse(R"([{"role":"user","content":"q"}])"));
  EXPECT_EQ(logic.people, 2);
  EXPECT_EQ(logic.texts->second, "");
}

TEST(PromptOfARow, FaultsAreNamed) {
  const auto fault = [](const std::string& json) {
    return error_of<FileError>([&] { read_prompt(Json::parse(json), "f.jsonl:7"); });
  };
  EXPECT_TRUE(has(
      fault(R"({"text": "a", "x": 1})"),
      "f.jsonl:7: no prompt; a row has \"messages\", or one of prompt, instruction, question. Its fields: "
      "text, x"));
  EXPECT_TRUE(has(fault(R"({"input_ids": [1, 2]})"), "f.jsonl:7: no prompt"));
  EXPECT_TRUE(has(fault(R"({"prompt": {"a": 1}})"), "f.jsonl:7: \"prompt\" is an object"));
  EXPECT_TRUE(has(fault(R"({"prompt": []})"), "f.jsonl:7: \"prompt\" is empty"));
  EXPECT_TRUE(has(fault(R"({"prompt": "a", "tools": 1})"), "f.jsonl:7: \"tools\" is a number"));
  const std::string answered = R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
  EXPECT_TRUE(
      has(fault("{\"messages\": " + answered + "}"), "f.jsonl:7: the last of \"messages\" is an answer"));
  EXPECT_TRUE(has(fault("{\"prompt\": " + answered + "}"), "f.jsonl:7: the last of \"prompt\" is an answer"));
}

}  // namespace
}  // namespace mantissa::text
