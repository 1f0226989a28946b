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

/// Two commands with a file of states give the answers of one, without computing the first conversation
/// again.
TEST(ChatCommand, ContinuesAConversationFromAFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  const Result whole = talk(folder, "one\ntwo\n", "--json");
  const Result first = talk(folder, "one\n", "--json --save-state talk.state");
  const Result second = talk(folder, "two\n", "--json --state talk.state --save-state talk.state");
  ASSERT_EQ(second.code, 0) << second.err;
  const auto ids_of = [](const std::string& line) { return nlohmann::json::parse(line)["ids"]; };
  const std::size_t end = whole.out.find('\n') + 1;
  EXPECT_EQ(ids_of(whole.out.substr(0, end)), ids_of(first.out));
  const nlohmann::json answer = nlohmann::json::parse(second.out);
  EXPECT_EQ(nlohmann::json::parse(whole.out.substr(end))["log_probs"], answer["log_probs"]);
  EXPECT_GE(answer["kept_tokens"], nlohmann::json::parse(first.out)["prompt_tokens"]);

  const Result other = talk(folder, "two\n", "--precision bf16-mixed --state talk.state");
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(
      has(other.err,
          "talk.state: \"model.layers.0.self_attn.k_proj.cache\" is f32, and this policy keeps it in bf16. "
          "Fix: --precision '32-true'"))
      << other.err;
}

/// At this temperature a model of bytes writes any of them, so that its answers are not UTF-8.
TEST(ChatCommand, AnAnswerThatEndsInsideACharacterKeepsItsTokens) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  const std::string any = "--json --temperature 100 --max-new-tokens 20 ";
  const Result whole = talk(folder, "one\ntwo\n", any);
  ASSERT_EQ(whole.code, 0) << whole.err;
  const std::size_t end = whole.out.find('\n') + 1;
  const nlohmann::json first = nlohmann::json::parse(whole.out.substr(0, end)),
                       second = nlohmann::json::parse(whole.out.substr(end));
  ASSERT_TRUE(has(first["content"].get<std::string>(), "\xEF\xBF\xBD")) << first;
  const std::int64_t tokens = first["prompt_tokens"].get<std::int64_t>() + std::ssize(first["ids"]);
  EXPECT_EQ(second["kept_tokens"], tokens - 1) << "all but the last, which was not read yet";

  ASSERT_EQ(talk(folder, "one\n", any + "--save-state talk.state").code, 0);
  const Result continued = talk(folder, "two\n", any + "--state talk.state");
  ASSERT_EQ(continued.code, 0) << continued.err;
  const nlohmann::json again = nlohmann::json::parse(continued.out);
  EXPECT_EQ(again["kept_tokens"], second["kept_tokens"]) << "a file of states has the bytes";
  EXPECT_EQ(again["log_probs"], second["log_probs"]);
  const Result user = talk(folder, "one \xE3\n", any);
  EXPECT_EQ(user.code, 2);
  EXPECT_TRUE(has(user.err, "not valid UTF-8")) << user.err;
}

/// What would be ignored, or lost without a word.
TEST(ChatCommand, RefusesOptionsThatAFileOfStatesContradicts) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  ASSERT_EQ(talk(folder, "one\n", "--save-state talk.state").code, 0);
  const Result system = talk(folder, "two\n", "--state talk.state --system Hi");
  EXPECT_EQ(system.code, 2);
  EXPECT_TRUE(has(system.err, "--state continues a conversation with its own system message")) << system.err;
  const Result nothing = talk(folder, "two\n", "--save-state ''");
  EXPECT_EQ(nothing.code, 2);
  EXPECT_TRUE(has(nothing.err, "--save-state: FILE is an empty word")) << nothing.err;
  const Result prompt = mantissa(folder, "generate r --state talk.state");
  EXPECT_EQ(prompt.code, 2);
  EXPECT_TRUE(has(prompt.err, "talk.state: the model has read all ")) << prompt.err;
}

TEST(GenerateCommand, ContinuesASequenceFromAFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  const auto made = [&](const std::string& options) {
    const Result r = mantissa(folder, "generate r --json --max-new-tokens 4 " + options);
    EXPECT_EQ(r.code, 0) << r.err;
    return nlohmann::json::parse(r.out);
  };
  const nlohmann::json first = made("--prompt-ids 5,6,7 --save-state a.state");
  std::string ids = "5,6,7";
  for (const auto& id : first["ids"]) ids += "," + id.dump();
  EXPECT_EQ(made("--state a.state --prompt-ids 9")["log_probs"],
            made("--prompt-ids " + ids + ",9")["log_probs"]);
  EXPECT_EQ(made("--state a.state")["log_probs"], made("--prompt-ids " + ids)["log_probs"])
      << "without a prompt";
  const Result two = mantissa(folder, "generate r --prompt-ids 5 --samples 2 --save-state b.state");
  EXPECT_EQ(two.code, 2);
  EXPECT_TRUE(has(two.err, "--save-state: keeps the states of one sequence")) << two.err;
  const Result model =
      mantissa(folder, "generate r --prompt-ids 5 --save-state r/model/config.json --overwrite");
  EXPECT_EQ(model.code, 2);
  EXPECT_TRUE(has(model.err, "choose another --save-state")) << model.err;
  write(folder / "text", "mine");
  EXPECT_EQ(mantissa(folder, "generate r --prompt-ids 5 --save-state text").code, 2);
  EXPECT_EQ(read_all(folder / "text"), "mine");
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
