// Conversations as rows: ids and masks of transformers, and the rules for rows that are not as they should
// be.
#include "mantissa/setup/data/sft_rows.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/api/tiny.h"
#include "mantissa/core/base/error.h"
#include "mantissa/setup/data/rows.h"
#include "mantissa/text/tokenizer/tokenizer.h"
#include "text/rows/temp_files.h"

namespace mantissa::data {
namespace {

namespace fs = std::filesystem;
using mantissa::testing::TemporaryFolder;
using text::error_of;
using text::has;
using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;

fs::path golden(const std::string& name) {
  return fs::path(MANTISSA_SOURCE_DIR) / "tests/golden/sft" / name;
}

std::vector<Json> lines_of(const fs::path& path) {
  std::ifstream in(path);
  std::vector<Json> rows;
  for (std::string line; std::getline(in, line);) rows.push_back(Json::parse(line));
  return rows;
}

/// A place of a tokenizer whose template is `source`.
ChatFormat format_of(const TemporaryFolder& folder, const std::string& source,
                     const fs::path& tokenizer = {}) {
  std::ofstream(folder / "t.jinja") << source;
  weights::ModelSource place;
  place.directory = tokenizer;
  return {place, (folder / "t.jinja").string(), "data.template =", *tokenizer::make_tokenizer("byte")};
}

TEST(AnswerIds, AndTheirMaskAreThoseOfTransformers) {
  const TemporaryFolder folder;
  const Json templates = Json::parse(std::ifstream(golden("templates.json")));
  const std::vector<Json> rows = lines_of(golden("rows.jsonl"));
  ASSERT_GT(rows.size(), 40U);
  for (const Json& row : rows) {
    const fs::path place = golden(row["tokenizer"].get<std::string>());
    const auto tokenizer = tokenizer::make_tokenizer(place.string());
    const ChatFormat format =
        format_of(folder, templates[row["template"].get<std::string>()].get<std::string>(), place);
    const AnswerIds got = answer_ids(format, *tokenizer, row["messages"], nullptr, TrainOn::assistant, "row");
    EXPECT_EQ(got.ids, row["ids"].get<Ids>()) << row;
    std::vector<int> mask(got.ids.size());
    for (const auto& [begin, end] : got.answers) {
      for (std::size_t t = begin; t < end; ++t) mask[t] = 1;
    }
    EXPECT_EQ(mask, row["mask"].get<std::vector<int>>()) << row;
  }
}

/// Encodes rows of bytes under ChatML.
class Rules : public ::testing::Test {
 protected:
  Rules() { place_.directory.clear(); }

  std::optional<text::Row> add(const Json& row) {
    const text::ConversationRow conversation = text::read_conversation(row, "f.jsonl:3");
    return encoder().add(conversation, encoder().encode(conversation, "f.jsonl:3"), "f.jsonl:3");
  }
  SftEncoder& encoder() {
    if (!encoder_) encoder_.emplace(rules, plain ? nullptr : &format_, *tokenizer_, 256);
    return *encoder_;
  }
  /// Returns the text that is trained, with | between parts.
  static std::string trained(const std::optional<text::Row>& row) {
    if (!row) return "(not used)";
    std::string text;
    for (std::size_t t = 0; t < row->ids.size(); ++t) {
      const bool label = row->labels[t] != text::kIgnoredLabel;
      if (label && t > 0 && row->labels[t - 1] == text::kIgnoredLabel && !text.empty()) text += '|';
      if (label) text += static_cast<char>(row->ids[t]);
    }
    return text;
  }
  static std::string whole(const std::optional<text::Row>& row) { return {row->ids.begin(), row->ids.end()}; }
  static Json talk(const std::vector<std::pair<std::string, std::string>>& turns) {
    Json row;
    for (const auto& [role, content] : turns)
      row["messages"].push_back({{"role", role}, {"content", content}});
    return row;
  }

  SftRules rules;
  bool plain = false;

 private:
  weights::ModelSource place_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_ = tokenizer::make_tokenizer("byte");
  ChatFormat format_{place_, "chatml", "data.template =", *tokenizer_};
  std::optional<SftEncoder> encoder_;
};

const std::vector<std::pair<std::string, std::string>> kTwoTurns = {
    {"user", "a"}, {"assistant", "B"}, {"user", "c"}, {"assistant", "D"}};

TEST_F(Rules, EveryAnswerIsTrainedWithTheEndOfItsTurn) {
  EXPECT_EQ(trained(add(talk(kTwoTurns))), "B<|im_end|>|D<|im_end|>");
}

TEST_F(Rules, TheLastAnswerAloneIsTrainedOnRequest) {
  rules.train_on = TrainOn::last;
  EXPECT_EQ(trained(add(talk(kTwoTurns))), "D<|im_end|>");
}

TEST_F(Rules, EveryTokenIsTrainedOnRequest) {
  rules.train_on = TrainOn::all;
  const auto row = add(talk(kTwoTurns));
  EXPECT_EQ(trained(row), whole(row));
}

TEST_F(Rules, LabelsOfIdsSayWhatIsTrained) {
  const auto row = add({{"input_ids", {97, 98, 99, 100}}, {"labels", {-100, -100, 99, -100}}});
  EXPECT_EQ(whole(row), "abcd");
  EXPECT_EQ(trained(row), "c");
  EXPECT_EQ(trained(add({{"input_ids", {97, 98}}, {"labels", {-100, -100}}})), "(not used)");
  EXPECT_EQ(trained(add({{"input_ids", {97}}})), "(not used)");
  EXPECT_EQ(encoder().counts().masked, 2);
  EXPECT_TRUE(has(error_of<ConfigError>([&] { add({{"input_ids", {97, 256}}}); }), "f.jsonl:3"));
  EXPECT_TRUE(has(error_of<ConfigError>([&] {
                    add({{"input_ids", {97, 98}}, {"labels", {-100, -3}}});
                  }),
                  "f.jsonl:3"));
}

TEST_F(Rules, WithoutATemplateTheCompletionAndTheSeparatorAreTrained) {
  plain = true;
  const auto row = add({{"prompt", "two and two is"}, {"completion", " four"}});
  EXPECT_EQ(whole(row), std::string("two and two is four") + '\0');
  EXPECT_EQ(trained(row), std::string(" four") + '\0');
  EXPECT_TRUE(has(error_of<FileError>([&] { add(talk(kTwoTurns)); }),
                  "f.jsonl:3: the row has messages, which need a chat template"));
}

TEST_F(Rules, ARowWithoutAnAnswerIsSkippedAndCounted) {
  EXPECT_EQ(trained(add(talk({{"user", "a"}}))), "(not used)");
  EXPECT_EQ(encoder().counts().masked, 1);
  EXPECT_EQ(encoder().counts().used, 0);
}

TEST_F(Rules, ARowWithoutAnAnswerIsRefusedOnRequest) {
  rules.masked_rows = "refuse";
  EXPECT_TRUE(has(error_of<FileError>([&] {
                    add(talk({{"user", "a"}}));
                  }),
                  "f.jsonl:3: no token of the row is trained"));
}

TEST_F(Rules, AnEmptyAnswerIsSkippedAndCounted) {
  EXPECT_EQ(trained(add(talk({{"user", "a"}, {"assistant", " \n"}}))), "(not used)");
  EXPECT_EQ(encoder().counts().empty, 1);
  EXPECT_EQ(encoder().counts().masked, 0);
}

TEST_F(Rules, AnEmptyAnswerTrainsTheEndOfTheTurnOnRequest) {
  rules.empty_answers = "train";
  EXPECT_EQ(trained(add(talk({{"user", "a"}, {"assistant", ""}}))), "<|im_end|>");
}

TEST_F(Rules, AnEmptyAnswerIsRefusedOnRequest) {
  rules.empty_answers = "refuse";
  EXPECT_TRUE(has(error_of<FileError>([&] {
                    add({{"prompt", "a"}, {"completion", ""}});
                  }),
                  "f.jsonl:3: the answer is empty"));
}

TEST_F(Rules, ALongRowIsRefusedWithTheCountAndTheLongest) {
  rules.sequence_length = 16;
  EXPECT_EQ(trained(add(talk(kTwoTurns))), "(not used)");
  const std::string message = error_of<ConfigError>([&] { encoder().check(); });
  EXPECT_TRUE(has(message, "1 row is of 1 longer") || has(message, "1 row is")) << message;
  EXPECT_TRUE(has(message, "data.sequence_length = 16")) << message;
  EXPECT_TRUE(has(message, "f.jsonl:3")) << message;
  EXPECT_TRUE(has(message, "data.truncate=left")) << message;
}

TEST_F(Rules, ALongRowIsSkippedOnRequest) {
  rules.sequence_length = 16;
  rules.truncate = "skip";
  EXPECT_EQ(trained(add(talk(kTwoTurns))), "(not used)");
  EXPECT_EQ(encoder().counts().skipped, 1);
  encoder().check();
}

TEST_F(Rules, TruncationOnTheLeftKeepsTheLastAnswer) {
  plain = true;
  rules.sequence_length = 9;
  rules.truncate = "left";
  const auto row = add({{"prompt", "a long question"}, {"completion", "answer"}});
  EXPECT_EQ(whole(row), std::string("ionanswer") + '\0');
  EXPECT_EQ(trained(row), std::string("answer") + '\0');
  EXPECT_EQ(encoder().counts().truncated, 1);
  EXPECT_EQ(encoder().counts().cut, 0);
  EXPECT_EQ(encoder().counts().dropped, 12);
}

TEST_F(Rules, TruncationOnTheLeftDropsWhatFollowsTheLastAnswer) {
  rules.sequence_length = 30;
  rules.truncate = "left";
  const auto row = add(talk({{"user", "a"}, {"assistant", "B"}, {"user", "a very long second question"}}));
  EXPECT_EQ(trained(row), "B<|im_end|>");
  EXPECT_TRUE(whole(row).ends_with("assistant\nB<|im_end|>"));
}

TEST_F(Rules, AnAnswerLongerThanARowLosesItsBeginning) {
  plain = true;
  rules.sequence_length = 4;
  rules.truncate = "left";
  const auto row = add({{"prompt", "q"}, {"completion", "answer"}});
  EXPECT_EQ(whole(row), std::string("swer") + '\0');
  EXPECT_EQ(encoder().counts().cut, 1);
}

TEST_F(Rules, TruncationOnTheRightKeepsTheBeginning) {
  plain = true;
  rules.sequence_length = 6;
  rules.truncate = "right";
  EXPECT_EQ(whole(add({{"prompt", "ask"}, {"completion", "answer"}})), "askansw");
  EXPECT_EQ(encoder().counts().cut, 1);
  EXPECT_EQ(trained(add({{"prompt", "a long question"}, {"completion", "answer"}})), "(not used)");
  EXPECT_EQ(encoder().counts().masked, 1) << "the answer is beyond the end";
}

TEST_F(Rules, CountsAreReportedInOneLine) {
  rules.truncate = "left";
  rules.sequence_length = 40;
  add(talk({{"user", "a"}}));
  add(talk({{"user", "a"}, {"assistant", ""}}));
  add(talk({{"user", "a question of many words and more"}, {"assistant", "B"}}));
  const std::string text = describe(encoder().counts(), rules, "f.jsonl");
  EXPECT_TRUE(has(text, "f.jsonl: 3 rows, 1 used with 41 tokens, 72.5 % of them masked")) << text;
  EXPECT_TRUE(has(text, "not used: 1 without a token to train, 1 with an empty answer")) << text;
  EXPECT_TRUE(has(text, "1 row is truncated on the left by ")) << text;
}

TEST(PrefixAnswers, ATemplateThatRewritesEarlierMessagesIsRefusedUnlessTheLastAnswerSuffices) {
  const TemporaryFolder folder;
  // The number of messages comes first, so no beginning of a conversation begins a longer one.
  const ChatFormat counts =
      format_of(folder,
                "{{ messages|length }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                "{% if add_generation_prompt %}<assistant>{% endif %}");
  const auto bytes = tokenizer::make_tokenizer("byte");
  const Json messages = {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "B"}}};
  const std::string message = error_of<FileError>(
      [&] { answer_ids(counts, *bytes, messages, nullptr, TrainOn::assistant, "f.jsonl:3"); });
  EXPECT_TRUE(has(message, "f.jsonl:3: the template ")) << message;
  EXPECT_TRUE(has(message, "messages[1]")) << message;
}

TEST(PrefixAnswers, APromptThatBeginsTheAnswerCountsAsFarAsTheAnswerBeginsWithIt) {
  const TemporaryFolder folder;
  const ChatFormat thinks = format_of(folder,
                                      "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
                                      "{% if add_generation_prompt %}<assistant><think>{% endif %}");
  const auto bytes = tokenizer::make_tokenizer("byte");
  const auto answer_of = [&](const std::string& content) {
    const Json messages = {{{"role", "user"}, {"content", "a"}},
                           {{"role", "assistant"}, {"content", content}}};
    const AnswerIds got = answer_ids(thinks, *bytes, messages, nullptr, TrainOn::assistant, "row");
    EXPECT_EQ(got.answers.size(), 1U);
    const auto [begin, end] = got.answers.front();
    return std::string(got.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                       got.ids.begin() + static_cast<std::ptrdiff_t>(end));
  };
  EXPECT_EQ(answer_of("B"), "B\n");
  EXPECT_EQ(answer_of("<think>c</think>B"), "c</think>B\n");
}

TEST(PrefixAnswers, AnAnswerThatBeginsTheConversationIsFoundAfterWhatTheTemplateAdds) {
  const TemporaryFolder folder;
  const auto bytes = tokenizer::make_tokenizer("byte");
  // As SmolLM's: a default system message, which a prompt without messages does not have.
  const std::string body =
      "{% for m in messages %}{% if loop.first and m.role != 'system' %}[system]Be kind[end]\n{% endif %}"
      "[{{ m.role }}]{{ m.content }}[end]\n{% endfor %}{% if add_generation_prompt %}[assistant]";
  const auto answers_of = [&](const std::string& source, const std::string& content) {
    const Json messages = {{{"role", "assistant"}, {"content", content}},
                           {{"role", "user"}, {"content", "c"}},
                           {{"role", "assistant"}, {"content", "D"}}};
    const ChatFormat format = format_of(folder, source);
    const AnswerIds got = answer_ids(format, *bytes, messages, nullptr, TrainOn::assistant, "f.jsonl:3");
    std::string text;
    for (const auto& [begin, end] : got.answers) {
      const auto first = got.ids.begin();
      text +=
          std::string(first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end)) +
          "|";
    }
    return text;
  };
  EXPECT_EQ(answers_of(body + "{% endif %}", "B"), "B[end]\n|D[end]\n|");
  // The end of the prompt is not in the text, and neither is its beginning a place of the answer.
  const std::string thinks = body + "<think>{% endif %}";
  const std::string message = error_of<FileError>([&] { answers_of(thinks, "B"); });
  EXPECT_TRUE(has(message, "f.jsonl:3: the conversation begins with an answer, and the template "))
      << message;
  // A later answer that begins as the prompt does is not the first one.
  const std::string last =
      "{% for m in messages %}[{{ m.role }}]{% if loop.last and m.role == 'assistant' and messages|length > "
      "1 %}<think>{% endif %}{{ m.content }}[end]{% endfor %}{% if add_generation_prompt "
      "%}[assistant]<think>{% endif %}";
  EXPECT_TRUE(answers_of(last, "B").starts_with("B[end]|"));
  // Without a default system message the common beginning is the answer's place.
  const std::string plain =
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}"
      "{% if add_generation_prompt %}[assistant]<think>{% endif %}";
  EXPECT_EQ(answers_of(plain, "B"), "B[end]|D[end]|");
}

TEST(SftData, OfAConfigHasItsCountsInANote) {
  const TemporaryFolder folder;
  std::ofstream(folder / "rows.jsonl") << R"({"prompt": "a", "completion": "b"})"
                                       << "\n\n"
                                       << R"({"prompt": "c", "completion": ""})"
                                       << "\n"
                                       << R"({"question": "d", "answer": "efg"})"
                                       << "\n";
  const auto config_of = [&](const std::string& data) {
    return config::parse_config(
        "[run]\nsteps = 1\n[model]\nhidden_size = 16\nvocab_size = 256\n[train]\n"
        "objective = \"sft\"\n[data]\nsource = \"rows.jsonl\"\nvalidation = 0\n"
        "template = \"chatml\"\nsequence_length = 64\n" +
            data + "[batch]\nglobal_batch_size = 2\n",
        folder / "run.toml");
  };
  model::ModelConfig model;
  model.vocab_size = 256;
  std::vector<std::string> notes;
  const text::Dataset set = load_dataset(config_of(""), model, {}, &notes);
  EXPECT_EQ(set.training_rows(), 2);
  EXPECT_EQ(set.left_out(), 1) << "the row with an empty answer";
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(has(notes[0], "rows.jsonl: 3 rows, 2 used")) << notes[0];
  const text::StepData step = load_dataset(config_of("shuffle = false\n"), model).step(1, 2);
  EXPECT_EQ(step.length(0) + 2, step.length(1)) << "rows have their own lengths";
  EXPECT_EQ(step.predicted(), 24);  // of b<|im_end|> and efg<|im_end|>
  std::ofstream(folder / "rows.jsonl") << R"({"messages": [{"role": "user", "content": "q"}]})";
  const std::string none = error_of<NoLabels>([&] { load_dataset(config_of(""), model); });
  EXPECT_TRUE(has(none, "rows.jsonl: 1 row, 0 used")) << none;
  EXPECT_TRUE(has(none, "not used: 1 without a token to train")) << none;
  std::ofstream(folder / "rows.jsonl") << R"({"prompt": "a", "completion": "b"})"
                                       << "\n"
                                       << R"({"prompt": "a)";
  const std::string cut = error_of<FileError>([&] { load_dataset(config_of(""), model); });
  EXPECT_TRUE(has(cut, "rows.jsonl:2: not JSON at byte")) << cut;
  EXPECT_TRUE(has(cut, "check that it is complete")) << cut;
  std::ofstream(folder / "rows.jsonl") << "\n";
  const std::string empty = error_of<ConfigError>([&] { load_dataset(config_of(""), model); });
  EXPECT_TRUE(has(empty, "rows.jsonl: no rows. Fix: write one JSON object on each line")) << empty;
}

TEST(SftData, IdsNeedNoTemplate) {
  const TemporaryFolder folder;
  std::ofstream(folder / "rows.jsonl") << R"({"input_ids": [1, 2, 3], "labels": [-100, 2, 3]})"
                                       << "\n";
  const config::RunConfig config = config::parse_config(
      "[run]\nsteps = 1\n[model]\nhidden_size = 16\nvocab_size = 256\n[train]\nobjective = \"sft\"\n"
      "[data]\nsource = \"rows.jsonl\"\nvalidation = 0\nsequence_length = 64\n[batch]\nglobal_batch_size = "
      "1\n",
      folder / "run.toml");
  model::ModelConfig model;
  model.vocab_size = 256;
  EXPECT_EQ(load_dataset(config, model).step(1, 1).predicted(), 2);
  std::ofstream(folder / "rows.jsonl") << R"({"messages": [{"role": "user", "content": "q"}]})";
  const std::string text = error_of<ConfigError>([&] { load_dataset(config, model); });
  EXPECT_TRUE(has(text, "no chat template")) << text;
}

TEST(SftData, OffersToTruncateOnTheLeftIfThatKeepsTheAnswers) {
  const TemporaryFolder folder;
  std::ofstream(folder / "rows.jsonl")
      << R"({"prompt": ")" << std::string(100, 'p') << R"(", "completion": "answer"})"
      << "\n";
  const auto config_of = [&](const std::string& side) {
    return config::parse_config(
        "[run]\nsteps = 1\n[model]\nhidden_size = 16\nvocab_size = 256\n[train]\nobjective = \"sft\"\n"
        "[data]\nsource = \"rows.jsonl\"\nvalidation = 0\ntemplate = \"none\"\nsequence_length = "
        "32\ntruncate = \"" +
            side + "\"\n[batch]\nglobal_batch_size = 1\n",
        folder / "run.toml");
  };
  model::ModelConfig model;
  model.vocab_size = 256;
  try {
    load_dataset(config_of("right"), model);
    ADD_FAILURE() << "no error";
  } catch (const NoLabels& e) {
    ASSERT_EQ(e.cures().size(), 1U);
    EXPECT_EQ(e.cures()[0].arguments, (std::vector<std::string>{"--set", "data.truncate=left"}));
  }
  EXPECT_EQ(load_dataset(config_of("left"), model).training_rows(), 1);
}

}  // namespace
}  // namespace mantissa::data
