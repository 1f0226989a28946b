// Prompts for answers: the ids before an answer in training on conversations, and where the answer begins.
#include "mantissa/setup/data/prompt_text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/data/sft_rows.h"
#include "mantissa/text/chat/templates.h"
#include "mantissa/text/puzzles/kk.h"
#include "text/rows/temp_files.h"

namespace mantissa::data {
namespace {

using Json = nlohmann::ordered_json;
using text::error_of;
using text::has;
using text::TempFiles;

/// Rows whose answers begin with their prompt's beginning of one.
std::vector<Json> logic_rl_rows() {
  const Json puzzle = {{"names", {"Zoey"}}, {"solution_text_format", "(1) Zoey is a knight"}};
  std::vector<Json> rows(4, puzzle);
  rows[0]["prompt"] =
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n"
      "<|im_start|>assistant\n<think>";
  rows[1]["prompt"] = "Who is who?\nAssistant: <think>";
  rows[2]["prompt"] = {{{"role", "user"}, {"content", "Who is who?\nAssistant:"}}};
  rows[3]["quiz"] = "Who is who?";
  text::KkOptions options;
  options.count = 3;
  for (const text::KkPuzzle& p : text::generate(options)) rows.push_back(Json::parse(text::to_jsonl_row(p)));
  return rows;
}

const std::string kGolden = MANTISSA_SOURCE_DIR "/tests/golden/sft/";

/// Returns a template with the special tokens of a tokenizer's directory, or without any.
ChatFormat format_of(const std::string& name, const std::string& directory = "") {
  weights::ModelSource place;
  place.directory = directory;
  return {place, name, "data.template =", *tokenizer::make_tokenizer("byte")};
}

/// Expects the ids of training on `trained` to begin with the prompt of `asked`. Under a template the trained
/// answer includes the beginning that the prompt gives it; without one the prompt is not trained.
void expect_same_prefix(const tokenizer::Tokenizer& tokenizer, const ChatFormat* format, const Json& trained,
                        const Json& asked) {
  const SftRules rules;
  const SftEncoder encoder(rules, format, tokenizer, tokenizer.vocabulary());
  const text::Row row = encoder.encode(text::read_conversation(trained, "row"), "row");
  const PromptText prompt =
      prompt_text(tokenizer, format, text::read_prompt(asked, "row"), tokenizer.vocabulary(), "row");
  const std::string what = tokenizer.name() + (format ? ", " + format->name() : ", no template") + ": " +
                           prompt.text + "\n" + trained.dump();
  ASSERT_LT(prompt.ids.size(), row.ids.size()) << what;
  EXPECT_TRUE(std::equal(prompt.ids.begin(), prompt.ids.end(), row.ids.begin())) << what;
  const auto first =
      std::ranges::find_if(row.labels, [](auto label) { return label != text::kIgnoredLabel; });
  const std::size_t answer = static_cast<std::size_t>(first - row.labels.begin());
  if (tokenizer.name() == "byte") {
    // The template rwkv also trains the space before an answer whose beginning the prompt has.
    const std::size_t space =
        format != nullptr && format->name() == "rwkv" && !prompt.begun().empty() ? 1 : 0;
    EXPECT_EQ(answer + space, format != nullptr ? prompt.answer : prompt.ids.size()) << what;
  }
}

TEST(PromptText, HasTheIdsBeforeTheAnswerInTraining) {
  std::vector<std::string> templates = chat::builtin_template_names();
  templates.emplace_back("none");
  const Json pair = {{"prompt", "What is 2 + 2?"}, {"completion", "Four."}};
  const Json talk = {{"messages",
                      {{{"role", "user"}, {"content", "Hi"}},
                       {{"role", "assistant"}, {"content", "Hello."}},
                       {{"role", "user"}, {"content", "And?"}},
                       {{"role", "assistant"}, {"content", "Done."}}}}};
  Json asked = talk;
  asked["messages"].erase(3);
  int compared = 0;
  for (const std::string& place : {std::string(), kGolden + "byte_level", kGolden + "llama"}) {
    const auto tokenizer = tokenizer::make_tokenizer(place.empty() ? "byte" : place);
    for (const std::string& name : templates) {
      if (name == "mistral" && place.empty()) continue;  // that template needs an end token
      std::optional<ChatFormat> format;
      if (name != "none") format.emplace(format_of(name, place));
      const ChatFormat* chosen = format ? &*format : nullptr;
      expect_same_prefix(*tokenizer, chosen, pair, pair);
      for (const Json& row : logic_rl_rows()) {
        const bool system = row.contains("prompt") && has(row["prompt"].dump(), "system") && name == "gemma";
        // A token of this vocabulary has the end of the prompt and the beginning of the answer.
        const bool joined =
            name == "none" && row.contains("quiz") && !row.contains("prompt") && !place.empty();
        if (system || joined) continue;  // that template has no system message
        expect_same_prefix(*tokenizer, chosen, row, row);
        ++compared;
      }
      if (chosen == nullptr) continue;
      SftRules rules;
      const SftEncoder encoder(rules, chosen, *tokenizer, tokenizer->vocabulary());
      const text::Row row = encoder.encode(text::read_conversation(talk, "row"), "row");
      const PromptText prompt =
          prompt_text(*tokenizer, chosen, text::read_prompt(asked, "row"), tokenizer->vocabulary(), "row");
      EXPECT_TRUE(std::equal(prompt.ids.begin(), prompt.ids.end(), row.ids.begin())) << name;
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(PromptText, BeginsTheAnswerAsTheRowDoes) {
  const auto bytes = tokenizer::make_tokenizer("byte");
  const ChatFormat chatml = format_of("chatml");
  const std::vector<Json> rows = logic_rl_rows();
  const auto prompt = [&](const ChatFormat* format, const Json& row) {
    return prompt_text(*bytes, format, text::read_prompt(row, "row"), 256, "row");
  };
  EXPECT_EQ(prompt(&chatml, rows[0]).begun(), "<think>");
  EXPECT_EQ(prompt(&chatml, rows[0]).text, rows[0]["prompt"]) << "ChatML gives a ChatML prompt back";
  EXPECT_EQ(prompt(nullptr, rows[0]).begun(), "<think>");
  EXPECT_EQ(prompt(nullptr, rows[0]).text, rows[0]["prompt"]);
  EXPECT_EQ(prompt(nullptr, rows[1]).question(), "Who is who?\nAssistant: ");
  EXPECT_EQ(prompt(&chatml, rows[1]).question(),
            "<|im_start|>user\nWho is who?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(prompt(nullptr, rows[3]).begun(), "");
  const PromptText spaced = prompt(nullptr, {{"prompt", "Think.\n<think>\n"}});
  EXPECT_EQ(spaced.begun(), "<think>\n") << "also in a row that is not a puzzle";
  EXPECT_EQ(spaced.question(), "Think.\n");
}

TEST(PromptText, ATemplateMayBeginTheAnswer) {
  const TempFiles files;
  const auto bytes = tokenizer::make_tokenizer("byte");
  const auto prompt = [&](const std::string& source, const Json& row) {
    const ChatFormat format = format_of(files.write("t.jinja", source));
    return prompt_text(*bytes, &format, text::read_prompt(row, "row"), 256, "row");
  };
  const std::string messages = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  const std::string thinks = messages + "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}";
  const Json row = {{"prompt", "Use <think>."}};
  EXPECT_EQ(prompt(thinks, row).question(), "[user]Use <think>.[assistant]");
  EXPECT_EQ(prompt(thinks, row).begun(), "<think>\n");
  const std::string blank =
      messages + "{% if add_generation_prompt %}[assistant]<think>\n\n</think>\n\n{% endif %}";
  EXPECT_EQ(prompt(blank, row).begun(), "<think>\n\n</think>\n\n");
  EXPECT_EQ(prompt(messages, row).begun(), "") << "a <think> of the user begins no answer";
  EXPECT_EQ(prompt(thinks, logic_rl_rows()[1]).text, "[user]Who is who?[assistant]<think>")
      << "a row's own beginning has the place of an answer's";
  const std::string trims =
      "{% for m in messages %}[{{ m.role }}]{{ m.content | replace('<think>', '') }}{% endfor %}";
  EXPECT_EQ(prompt(trims + "{% if add_generation_prompt %}[assistant]{% endif %}", logic_rl_rows()[1]).text,
            "[user]Who is who?[assistant]<think>");
}

TEST(PromptText, FaultsNameTheRow) {
  const TempFiles files;
  const auto bytes = tokenizer::make_tokenizer("byte");
  const auto error = [&](const ChatFormat* format, const Json& row) {
    return error_of<FileError>(
        [&] { prompt_text(*bytes, format, text::read_prompt(row, "f.jsonl:3"), 256, "f.jsonl:3"); });
  };
  const Json messages = {{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  EXPECT_TRUE(has(error(nullptr, messages), "f.jsonl:3: the row has messages, which need a chat template"));
  EXPECT_TRUE(has(error(nullptr, {{"prompt", ""}}), "f.jsonl:3: the prompt is empty"));
  const ChatFormat refuses = format_of(files.write("t.jinja", "{{ raise_exception('no talk') }}"));
  EXPECT_TRUE(has(error(&refuses, messages), "f.jsonl:3: the template"));
  EXPECT_TRUE(has(error(&refuses, messages), "rejects the conversation: no talk"));
  const ChatFormat broken = format_of(files.write("u.jinja", "{{ messages.x.y }}"));
  EXPECT_TRUE(has(error(&broken, messages), "f.jsonl:3: the conversation cannot be rendered"));
  EXPECT_TRUE(has(error_of<ConfigError>([&] {
                    prompt_text(*bytes, nullptr, text::read_prompt({{"prompt", "aé"}}, "f:1"), 150, "f:1");
                  }),
                  "f:1: "));
}

}  // namespace
}  // namespace mantissa::data
