#include "mantissa/text/rows/preference_row.h"

#include <gtest/gtest.h>

#include "mantissa/core/base/error.h"
#include "text/rows/temp_files.h"

namespace mantissa::text::preference_row_test {
namespace {

using Json = nlohmann::ordered_json;

PreferenceRow read(const std::string& json) {
  return read_preference(Json::parse(json), "p.jsonl:7");
}
std::string refusal(const std::string& json) {
  return error_of<FileError>([&] { read(json); });
}

/// Returns roles and contents: "u:a s:b".
std::string talk(const PromptedAnswer& answer) {
  std::string text;
  for (std::size_t i = 0; i < answer.row.messages.size(); ++i) {
    const Json& m = answer.row.messages[i];
    if (i == answer.prompt_messages) text += "| ";
    text += m["role"].get<std::string>().substr(0, 1) + ":" + m["content"].get<std::string>() + " ";
  }
  return text;
}

TEST(PreferenceRow, OfTextsIsOneExchangeTwice) {
  const PreferenceRow row = read(R"({"prompt": "q", "chosen": "good", "rejected": "bad"})");
  EXPECT_EQ(talk(row.chosen), "u:q | a:good ");
  EXPECT_EQ(talk(row.rejected), "u:q | a:bad ");
  EXPECT_EQ(row.chosen.row.texts, std::pair(std::string("q"), std::string("good")));
  EXPECT_EQ(row.rejected.row.texts, std::pair(std::string("q"), std::string("bad")));
  EXPECT_EQ(row.margin, 0);
  EXPECT_EQ(read(R"({"prompt": "q", "chosen": "g", "rejected": "b", "margin": 1.5})").margin, 1.5);
  EXPECT_EQ(read(R"({"prompt": "q", "chosen": "g", "rejected": "b", "margin": null})").margin, 0);
  EXPECT_EQ(read(R"({"prompt": "q", "chosen": "g", "rejected": "b", "margin": " 1.5"})").margin, 1.5)
      << "a value of CSV is a text";
  EXPECT_EQ(read(R"({"prompt": "q", "chosen": "g", "rejected": "b", "margin": ""})").margin, 0);
}

TEST(PreferenceRow, TakesASystemMessageAndOtherNamesOfThePrompt) {
  const PreferenceRow row = read(R"({"system": "s", "question": "q", "chosen": "good", "rejected": "bad"})");
  EXPECT_EQ(talk(row.chosen), "s:s u:q | a:good ");
  EXPECT_EQ(row.chosen.row.texts->first, "s\n\nq");
}

constexpr const char* kQuestion = R"({"role": "user", "content": "q"})";
constexpr const char* kGood = R"({"role": "assistant", "content": "good"})";
constexpr const char* kBad = R"({"role": "assistant", "content": "bad"})";

/// The conversational forms of TRL, and that of UltraFeedback, whose prompt is a text.
TEST(PreferenceRow, OfMessagesMayRepeatThePromptOrNot) {
  const std::string q = kQuestion, good = kGood, bad = kBad;
  const std::string without = R"("chosen": [)" + good + R"(], "rejected": [)" + bad + "]";
  const std::string with = R"("chosen": [)" + q + "," + good + R"(], "rejected": [)" + q + "," + bad + "]";
  for (const std::string& json :
       {R"({"prompt": [)" + q + "], " + without + "}", R"({"prompt": [)" + q + "], " + with + "}",
        "{" + with + "}", R"({"prompt": "q", )" + with + "}", R"({"prompt": "q", )" + without + "}"}) {
    const PreferenceRow row = read(json);
    EXPECT_EQ(talk(row.chosen), "u:q | a:good ") << json;
    EXPECT_EQ(talk(row.rejected), "u:q | a:bad ") << json;
    EXPECT_FALSE(row.chosen.row.texts) << json;
  }
}

TEST(PreferenceRow, OfMessagesMayBeginWithASystemMessageBeforeAPromptOfText) {
  const std::string system = R"({"role": "system", "content": "s"},)";
  const PreferenceRow row = read(R"({"prompt": "q", "chosen": [)" + system + kQuestion + "," + kGood +
                                 R"(], "rejected": [)" + system + kQuestion + "," + kBad + "]}");
  EXPECT_EQ(talk(row.chosen), "s:s u:q | a:good ");
}

TEST(PreferenceRow, KeepsEarlierAnswersInThePrompt) {
  const std::string before = std::string(kQuestion) + "," + kGood + "," + kQuestion + ",";
  const PreferenceRow row =
      read(R"({"chosen": [)" + before + kGood + R"(], "rejected": [)" + before + kBad + "]}");
  EXPECT_EQ(talk(row.chosen), "u:q a:good u:q | a:good ");
  // Two equal answers still have one.
  EXPECT_EQ(
      talk(read(R"({"chosen": [)" + before + kGood + R"(], "rejected": [)" + before + kGood + "]}").chosen),
      "u:q a:good u:q | a:good ");
}

TEST(PreferenceRow, OfTextsAloneSharesItsFirstCharacters) {
  // é and è share their first byte.
  const PreferenceRow row =
      read(R"({"chosen": "Human: q\n\nAssistant: é", "rejected": "Human: q\n\nAssistant: è"})");
  EXPECT_EQ(row.chosen.row.texts, std::pair(std::string("Human: q\n\nAssistant: "), std::string("é")));
  EXPECT_EQ(row.rejected.row.texts->second, "è");
  EXPECT_TRUE(row.chosen.row.messages.empty());
}

TEST(PreferenceRow, PassesTools) {
  EXPECT_EQ(
      read(R"({"prompt": "q", "chosen": "g", "rejected": "b", "tools": [{"name": "f"}]})").rejected.row.tools,
      Json::parse(R"([{"name": "f"}])"));
}

TEST(PreferenceRow, RefusesOtherRowsByFileLineAndField) {
  EXPECT_EQ(
      refusal(R"({"prompt": "q", "chosen": "g", "reject": "b"})"),
      "p.jsonl:7: no \"rejected\"; a row of pairs has \"chosen\" and \"rejected\", and usually "
      "\"prompt\". Its fields: prompt, chosen, reject. Fix: name the fields that it has in the config, such as "
      "data.fields = {prompt = \"query\"}");
  EXPECT_EQ(refusal(R"({"prompt": "q", "chosen": 3, "rejected": "b"})"),
            "p.jsonl:7: \"chosen\" is a number; expected a string, or an array of messages");
  EXPECT_EQ(refusal(R"({"prompt": {}, "chosen": "g", "rejected": "b"})"),
            "p.jsonl:7: \"prompt\" is an object; expected a string, or an array of messages");
  EXPECT_EQ(refusal(R"({"prompt": "q", "chosen": "g", "rejected": [{"role": "assistant", "content": "b"}]})"),
            "p.jsonl:7: \"chosen\" is a string, but \"rejected\" is an array; expected two strings, or two "
            "arrays of messages");
  EXPECT_EQ(refusal(R"({"prompt": "q", "chosen": [], "rejected": [{"role": "assistant", "content": "b"}]})"),
            "p.jsonl:7: \"chosen\" is empty; expected messages");
  EXPECT_EQ(refusal(R"({"chosen": [{"content": "g"}], "rejected": [{"role": "assistant", "content": "b"}]})"),
            "p.jsonl:7: chosen[0] has no \"role\"; expected user, assistant or system");
  EXPECT_EQ(refusal(R"({"prompt": "q", "chosen": "g", "rejected": "b", "margin": "large"})"),
            "p.jsonl:7: \"margin\" is a string; expected a number");
}

}  // namespace
}  // namespace mantissa::text::preference_row_test
