// Pairs of answers as rows: what is read and predicted of them, and the rules for rows that are not as they
// should be.
#include "mantissa/setup/data/pair_rows.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/api/tiny.h"
#include "mantissa/core/base/error.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data::pair_rows_test {
namespace {

using mantissa::testing::has;
using mantissa::testing::TemporaryFolder;
using Json = nlohmann::ordered_json;

template <class E, class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

std::string whole(const text::Row& row) {
  return {row.ids.begin(), row.ids.end()};
}
/// Returns the text that is predicted, with | between parts.
std::string answer(const text::Row& row) {
  std::string text;
  for (std::size_t t = 0; t < row.ids.size(); ++t) {
    const bool label = row.labels[t] != text::kIgnoredLabel;
    if (label && t > 0 && row.labels[t - 1] == text::kIgnoredLabel && !text.empty()) text += '|';
    if (label) text += static_cast<char>(row.ids[t]);
  }
  return text;
}

/// Encodes pairs of bytes under ChatML, or as they are.
class Pairs : public ::testing::Test {
 protected:
  std::optional<EncodedPair> add(const Json& row) {
    const text::PreferenceRow pair = text::read_preference(row, "p.jsonl:3");
    return encoder().add(pair, encoder().encode(pair, "p.jsonl:3"), "p.jsonl:3");
  }
  PairEncoder& encoder() {
    if (!encoder_) encoder_.emplace(rules, scores, plain ? nullptr : &format_, *tokenizer_, 256);
    return *encoder_;
  }

  SftRules rules;
  bool plain = false, scores = false;

 private:
  weights::ModelSource place_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_ = tokenizer::make_tokenizer("byte");
  ChatFormat format_{place_, "chatml", "data.template =", *tokenizer_};
  std::optional<PairEncoder> encoder_;
};

const Json kTexts = {{"prompt", "q"}, {"chosen", "good"}, {"rejected", "bad"}};

TEST_F(Pairs, OfTextsAreConversationsUnderATemplate) {
  const auto pair = add(kTexts);
  EXPECT_EQ(whole(pair->chosen), "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\ngood<|im_end|>\n");
  EXPECT_EQ(answer(pair->chosen), "good<|im_end|>");
  EXPECT_EQ(answer(pair->rejected), "bad<|im_end|>");
}

TEST_F(Pairs, WithoutATemplateEndWithTheSeparator) {
  plain = true;
  const auto pair = add(kTexts);
  EXPECT_EQ(whole(pair->chosen), std::string("qgood\0", 6));
  EXPECT_EQ(answer(pair->rejected), std::string("bad\0", 4));
  EXPECT_EQ(
      error_of<FileError>([&] {
        add({{"chosen", {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "b"}}}},
             {"rejected",
              {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "c"}}}}});
      }),
      "p.jsonl:3: the row has messages, which need a chat template. Fix: choose one with data.template, or "
      "with --template");
}

TEST_F(Pairs, OfTextsAloneNeedNoTemplate) {
  EXPECT_TRUE(has(error_of<FileError>([&] {
                    add({{"chosen", "a b"}, {"rejected", "a c"}});
                  }),
                  "p.jsonl:3: the row has texts without a prompt"));
  plain = true;
  // The encoder was made for the template.
  const auto tokenizer = tokenizer::make_tokenizer("byte");
  PairEncoder encoder(rules, false, nullptr, *tokenizer, 256);
  const text::PreferenceRow row = text::read_preference({{"chosen", "a b"}, {"rejected", "a c"}}, "p:1");
  EXPECT_EQ(answer(encoder.encode(row, "p:1").chosen), std::string("b\0", 2));
}

Json talk(const std::vector<std::pair<std::string, std::string>>& turns) {
  Json messages = Json::array();
  for (const auto& [role, content] : turns) messages.push_back({{"role", role}, {"content", content}});
  return messages;
}

/// Answers of the prompt are not predicted, whether the row repeats the prompt or not.
TEST_F(Pairs, PredictTheAnswersAfterThePromptAlone) {
  const Json row = {
      {"chosen", talk({{"user", "a"}, {"assistant", "B"}, {"user", "c"}, {"assistant", "D"}})},
      {"rejected", talk({{"user", "a"}, {"assistant", "B"}, {"user", "c"}, {"assistant", "E"}})}};
  EXPECT_EQ(answer(add(row)->chosen), "D<|im_end|>");
  const Json longer = {{"prompt", talk({{"user", "a"}, {"assistant", "B"}, {"user", "c"}})},
                       {"chosen", talk({{"assistant", "D"}, {"user", "e"}, {"assistant", "F"}})},
                       {"rejected", talk({{"assistant", "X"}})}};
  const auto pair = add(longer);
  EXPECT_EQ(answer(pair->chosen), "D<|im_end|>|F<|im_end|>");
  EXPECT_EQ(answer(pair->rejected), "X<|im_end|>");
  rules.train_on = TrainOn::last;
  EXPECT_EQ(answer(add(longer)->chosen), "F<|im_end|>");
  rules.train_on = TrainOn::all;
  const auto all = add(longer);
  EXPECT_EQ(answer(all->chosen), whole(all->chosen));
}

/// A score is read after the last id, which the model must read: it is there twice.
TEST_F(Pairs, ForScoresAreReadToTheirLastId) {
  scores = true;
  const auto pair = add(kTexts);
  EXPECT_EQ(whole(pair->chosen), "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\ngood<|im_end|>\n\n");
  EXPECT_TRUE(pair->chosen.labels.empty());
}

TEST_F(Pairs, AreTruncatedOrNotUsedTogether) {
  plain = true;
  rules.sequence_length = 8;  // 9 ids
  const Json longest = {{"prompt", "123456"}, {"chosen", "ab"}, {"rejected", "abcd"}};
  const Json fits = {{"prompt", "123456"}, {"chosen", "ab"}, {"rejected", "cd"}};
  EXPECT_TRUE(add(fits));
  EXPECT_FALSE(add(longest));
  EXPECT_EQ(encoder().counts().too_long, 1);
  const std::string told = error_of<ConfigError>([&] { encoder().check(); });
  EXPECT_TRUE(has(told,
                  "1 of 2 pairs have a row longer than data.sequence_length = 8; the longest has 11 ids "
                  "(p.jsonl:3)"))
      << told;
  rules.truncate = "skip";
  EXPECT_FALSE(add(longest));
  EXPECT_EQ(encoder().counts().skipped, 1);
  rules.truncate = "left";
  const auto left = add(longest);
  EXPECT_EQ(whole(left->rejected), std::string("3456abcd\0", 9));
  EXPECT_EQ(whole(left->chosen), std::string("123456ab\0", 9)) << "a row that fits stays";
  rules.truncate = "right";
  const auto right = add(longest);
  EXPECT_EQ(whole(right->rejected), "123456abc");
  EXPECT_EQ(answer(right->rejected), "abc");
  EXPECT_EQ(encoder().counts().truncated, 2);
  EXPECT_EQ(encoder().counts().cut, 1);
  EXPECT_EQ(encoder().counts().dropped, 4);
}

TEST_F(Pairs, ForScoresKeepTheEndThatIsScored) {
  scores = true;
  rules.sequence_length = 8;
  rules.truncate = "left";
  EXPECT_EQ(whole(add(kTexts)->chosen), "m_end|>\n\n")
      << "the end of the turn, and what the template writes after it";
  rules.sequence_length = 20;
  EXPECT_EQ(whole(add(kTexts)->chosen), "tant\ngood<|im_end|>\n\n");
}

TEST_F(Pairs, WithAnEmptyOrMissingAnswerFollowTheRules) {
  EXPECT_FALSE(add({{"prompt", "q"}, {"chosen", "good"}, {"rejected", " "}}));
  EXPECT_FALSE(add({{"prompt", "q"}, {"chosen", ""}, {"rejected", "bad"}}));
  EXPECT_EQ(encoder().counts().empty, 2);
  rules.empty_answers = "train";
  EXPECT_EQ(answer(add({{"prompt", "q"}, {"chosen", "good"}, {"rejected", ""}})->rejected), "<|im_end|>");
  rules.empty_answers = "refuse";
  EXPECT_EQ(error_of<FileError>([&] {
              add({{"prompt", "q"}, {"chosen", "good"}, {"rejected", ""}});
            }),
            "p.jsonl:3: an answer is empty, and data.empty_answers = \"refuse\"");
  const Json none = {{"prompt", talk({{"user", "a"}})},
                     {"chosen", talk({{"assistant", "b"}})},
                     {"rejected", talk({{"user", "c"}})}};
  EXPECT_FALSE(add(none));
  EXPECT_EQ(encoder().counts().masked, 1);
  rules.masked_rows = "refuse";
  EXPECT_EQ(error_of<FileError>([&] { add(none); }),
            "p.jsonl:3: a row of the pair has no answer, and data.masked_rows = \"refuse\"");
}

TEST_F(Pairs, AreDescribedInOneLine) {
  rules.sequence_length = 70;
  rules.truncate = "left";
  add(kTexts);
  add({{"prompt", "q"}, {"chosen", "good"}, {"rejected", ""}});
  add({{"prompt", std::string(40, 'q')}, {"chosen", "good"}, {"rejected", "bad"}});
  EXPECT_EQ(
      describe(encoder().counts(), rules, "p.jsonl"),
      "p.jsonl: 3 pairs, 2 used with 273 tokens; the longest row has 105; not used: 1 with an empty answer; "
      "2 rows are truncated on the left by 67 tokens, 0 in an answer");
}

class PairFiles : public ::testing::Test {
 protected:
  config::RunConfig config(const std::string& more, const std::string& objective = "dpo") {
    return config::parse_config(
        "[run]\nsteps = 2\n[model]\nvocab_size = 258\nhidden_size = 16\nintermediate_size = 24\n"
        "num_hidden_layers = 1\nnum_attention_heads = 2\n[train]\nobjective = \"" +
            objective + "\"\n[data]\ntemplate = \"none\"\nsequence_length = 16\n" + more,
        folder / "run.toml");
  }
  std::string file(const std::string& name, int pairs) {
    std::ofstream out(folder / name);
    for (int i = 0; i < pairs; ++i) {
      out << Json{{"prompt", "q"},
                  {"chosen", std::string(1, static_cast<char>('a' + i))},
                  {"rejected", "z"},
                  {"margin", i}}
                 .dump()
          << "\n";
    }
    return name;
  }
  PairSet load(const config::RunConfig& c, std::vector<std::string>* notes = nullptr) {
    return load_pairs(c, model::parse_model_config(c.model.fields, "[model]"), notes);
  }
  TemporaryFolder folder;
};

/// A batch counts pairs, whose rows stay together and in order in every epoch.
TEST_F(PairFiles, AreReadAsUnitsOfTwoRows) {
  file("p.jsonl", 5);
  std::vector<std::string> notes;
  const PairSet pairs =
      load(config("source = \"p.jsonl\"\nvalidation = 0.2\n[batch]\nglobal_batch_size = 3\n"), &notes);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(has(notes[0], "p.jsonl: 5 pairs, 5 used with 30 tokens; the longest row has 3")) << notes[0];
  EXPECT_EQ(pairs.margins, (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pairs.rows.training_rows(), 4);
  std::set<std::int64_t> seen;
  for (const std::int64_t step : {1, 2, 3, 4}) {
    const text::StepData data = pairs.rows.step(step, 3);
    EXPECT_EQ(data.items(), 3);
    EXPECT_EQ(data.rows, 6);
    for (std::int64_t u = 0; u < 3; ++u) {
      const std::int64_t r = data.item_row(u);
      EXPECT_EQ(r, 2 * u);
      EXPECT_EQ(data.row(r).ids[1], 'a' + data.origin[static_cast<std::size_t>(r)]);
      EXPECT_EQ(data.row(r + 1).ids[1], 'z');
      EXPECT_EQ(data.origin[static_cast<std::size_t>(r)], data.origin[static_cast<std::size_t>(r) + 1]);
      seen.insert(data.origin[static_cast<std::size_t>(r)]);
    }
  }
  EXPECT_EQ(seen, (std::set<std::int64_t>{0, 1, 2, 3}));
  const text::StepData held_out = pairs.rows.validation(0, 1);
  EXPECT_EQ(held_out.rows, 2);
  EXPECT_EQ(held_out.origin, (std::vector<std::int64_t>{4, 4}));
}

TEST_F(PairFiles, MayBeHeldOutInFilesOfTheirOwn) {
  file("p.jsonl", 3);
  file("v.jsonl", 2);
  const PairSet pairs = load(config("source = \"p.jsonl\"\nvalidation = [\"v.jsonl\"]\n", "reward"));
  EXPECT_EQ(pairs.rows.training_rows(), 3);
  EXPECT_EQ(pairs.rows.validation_rows(), 2);
  EXPECT_EQ(pairs.held_out_margins, (std::vector<double>{0, 1}));
  EXPECT_EQ(pairs.last_ids, (std::set<std::int32_t>{0}));
}

TEST_F(PairFiles, WithErrorsAreNamedByFileAndLine) {
  std::ofstream(folder / "bad.jsonl") << R"({"prompt": "q", "chosen": "a", "rejected": "b"})"
                                      << "\n\n"
                                      << R"({"prompt": "q", "chosen": "a"})"
                                      << "\n";
  EXPECT_TRUE(has(error_of<FileError>([&] { load(config("source = \"bad.jsonl\"\n")); }),
                  "bad.jsonl:3: no \"rejected\""));
  std::ofstream(folder / "none.jsonl") << R"({"prompt": "q", "chosen": "a", "rejected": ""})"
                                       << "\n";
  EXPECT_TRUE(
      has(error_of<ConfigError>([&] { load(config("source = \"none.jsonl\"\n")); }),
          "none.jsonl: 1 pair, 0 used with 0 tokens; the longest row has 0; not used: 1 with an empty "
          "answer. Fix: every pair needs two answers"));
  std::ofstream(folder / "empty.jsonl") << "\n";
  EXPECT_TRUE(has(
      error_of<ConfigError>([&] { load(config("source = \"empty.jsonl\"\n")); }),
      "empty.jsonl: no pairs. Fix: write one JSON object on each line, or an array of them, with \"chosen\""));
  EXPECT_TRUE(has(error_of<ConfigError>([&] { load(config("source = \"kk\"\n")); }),
                  "generated rows have one answer"));
}

}  // namespace
}  // namespace mantissa::data::pair_rows_test
