// mantissa chat: a pipe of messages, commands, and errors.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/cli/run_program.h"

namespace mantissa::testing {
namespace {

/// A byte model with the template chatml, and the lines of its standard input.
Result talk(const TemporaryFolder& folder, const std::string& lines, const std::string& options = "") {
  write(folder / "lines", lines);
  return mantissa(folder, "chat r --template chatml --max-new-tokens 4 " + options + " < lines");
}

TEST(ChatCommand, AnswersEachLineOfAPipe) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  const Result r = talk(folder, "one\n\ntwo\n/save talk.json\n", "--json");
  ASSERT_EQ(r.code, 0) << r.err;
  std::istringstream lines(r.out);
  std::string line;
  std::vector<nlohmann::json> answers;
  while (std::getline(lines, line)) answers.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0]["ids"].size(), 4U);
  EXPECT_EQ(answers[0]["end"], "max_new_tokens");
  EXPECT_GE(answers[1]["kept_tokens"], answers[0]["prompt_tokens"]);
  const nlohmann::json saved = nlohmann::json::parse(read_all(folder / "talk.json"));
  ASSERT_EQ(saved["messages"].size(), 4U);
  EXPECT_EQ(saved["messages"][2]["role"], "user");
  EXPECT_EQ(saved["messages"][2]["content"], "two");
  EXPECT_EQ(saved["messages"][3]["content"], answers[1]["content"]);
}

TEST(ChatCommand, ResetAndSystemChangeTheMessages) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  const Result r = talk(folder, "one\n/reset\n/system Be brief.\n//two\n/save talk.json\n", "--system Hi");
  ASSERT_EQ(r.code, 0) << r.err;
  const nlohmann::json saved = nlohmann::json::parse(read_all(folder / "talk.json"));
  ASSERT_EQ(saved["messages"].size(), 3U);
  EXPECT_EQ(saved["messages"][0]["content"], "Be brief.");
  EXPECT_EQ(saved["messages"][1]["content"], "/two");
}

TEST(ChatCommand, ShowsThePromptThatTheTemplateRenders) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  const std::string prompt = "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n";
  const Result text = talk(folder, "one\n", "--show-prompt");
  EXPECT_TRUE(has(text.err, prompt)) << text.err;
  EXPECT_FALSE(has(text.out, "im_start")) << text.out;
  const Result json = talk(folder, "one\n", "--show-prompt --json");
  EXPECT_EQ(nlohmann::json::parse(json.out)["prompt"], prompt);
  EXPECT_FALSE(has(json.err, "im_start")) << json.err;
  EXPECT_FALSE(nlohmann::json::parse(talk(folder, "one\n", "--json").out).contains("prompt"));
}

TEST(ChatCommand, QuitAndExitEndTheConversation) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  for (const char* word : {"/quit", "/exit"}) {
    const Result r = talk(folder, std::string("/save a.json\n") + word + "\n/save b.json\n");
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_TRUE(std::filesystem::exists(folder / "a.json"));
    EXPECT_FALSE(std::filesystem::exists(folder / "b.json")) << word;
    std::filesystem::remove(folder / "a.json");
  }
  const Result help = talk(folder, "/help\n");
  EXPECT_TRUE(has(help.err, "/quit, /exit")) << help.err;
}

TEST(ChatCommand, ErrorsOfAPipeEndTheCommand) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  const Result unknown = talk(folder, "/restart\none\n");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(has(unknown.err, "unknown command \"/restart\"")) << unknown.err;
  EXPECT_EQ(unknown.out, "");
  const Result none = mantissa(folder, "chat r < /dev/null");
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(has(none.err, "no chat template")) << none.err;
  EXPECT_TRUE(has(none.err, "--template: chatml") && has(none.err, "mantissa generate")) << none.err;
}

}  // namespace
}  // namespace mantissa::testing
