// Multiple choice: how questions become tokens, how answers are chosen, and their log-probabilities.
#include "mantissa/generate/eval/choices.h"

#include <gtest/gtest.h>

#include <cmath>

#include "generate/eval/tiny_model.h"
#include "mantissa/core/base/error.h"
#include "text/rows/temp_files.h"

namespace mantissa::eval {
namespace {

using mantissa::testing::best_device;
using text::error_of;
using text::has;
using Ids = std::vector<std::int32_t>;

class Choices : public ::testing::Test {
 protected:
  std::vector<ChoiceQuestion> read(const std::string& content, std::int64_t limit = 0) const {
    return read_choices(source, {files.write("q.jsonl", content), limit});
  }
  std::string refused(const std::string& line) const {
    const std::string good = "{\"query\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": 1}\n";
    return error_of<FileError>([&] { read(good + line); });
  }
  const text::TempFiles files;
  const weights::ModelSource source = tiny_model();
};

Ids bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

TEST_F(Choices, FollowTheirContextAfterASpace) {
  const auto questions = read(
      "{\"query\": \"Q\", \"choices\": [\"x\", \"yz\"], \"gold\": 1}\n\n"
      "{\"context\": \"Q: \", \"choices\": [\"x\", \" y\"], \"gold\": 0, \"id\": 7}\n");
  ASSERT_EQ(questions.size(), 2U);
  EXPECT_EQ(questions[0].gold, 1);
  EXPECT_EQ(questions[0].passages[1].ids, bytes("Q yz"));
  EXPECT_EQ(questions[0].passages[1].word, 1U);
  EXPECT_EQ(questions[0].bytes, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(questions[1].passages[0].ids, bytes("Q: x")) << "the context's own space";
  EXPECT_EQ(questions[1].passages[0].word, 2U) << "the space belongs to the choice";
  EXPECT_EQ(questions[1].passages[1].ids, bytes("Q:  y"));
  EXPECT_EQ(questions[1].passages[0].place.line, 3);
  EXPECT_EQ(read("{\"query\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": 1}\n{", 1).size(), 1U);
}

TEST_F(Choices, MayBeAnArray) {
  const auto questions = read(
      "[{\"query\": \"Q\", \"choices\": [\"x\", \"y\"], \"gold\": 1},\n {\"query\": \"R\", \"choices\": [\"x\", \"y\"], "
      "\"gold\": 0}]");
  ASSERT_EQ(questions.size(), 2U);
  EXPECT_EQ(questions[1].passages[0].ids, bytes("R x"));
  EXPECT_EQ(questions[1].passages[0].place.row, 2);
}

TEST_F(Choices, AreCountedInCharactersAndBytes) {
  const auto questions = read("{\"query\": \"Q\", \"choices\": [\"\u00e9\u00e9\", \"e\"], \"gold\": 1}");
  EXPECT_EQ(questions[0].characters, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(questions[0].bytes, (std::vector<std::int64_t>{4, 1}));
}

TEST_F(Choices, WithoutContextFollowTheSeparator) {
  const auto questions = read("{\"query\": \"\", \"choices\": [\"x\", \"y\"], \"gold\": 1}");
  EXPECT_EQ(questions[0].passages[0].ids, (Ids{0, ' ', 'x'}));
  EXPECT_EQ(questions[0].passages[0].word, 1U);
}

TEST_F(Choices, ALongContextLosesItsBeginning) {
  const std::string context(200, 'c');
  const auto questions = read("{\"query\": \"" + context + "\", \"choices\": [\"x\", \"yz\"], \"gold\": 1}");
  for (const Passage& p : questions[0].passages) EXPECT_EQ(std::ssize(p.ids), kTinyPositions + 1);
  EXPECT_EQ(questions[0].passages[1].word, static_cast<std::size_t>(kTinyPositions) + 1 - 3);
}

TEST_F(Choices, RowsThatAreNotQuestionsAreNamed) {
  EXPECT_TRUE(has(refused("{\"query\": 1}"), "q.jsonl:2: no string field \"query\" or \"context\""));
  EXPECT_TRUE(has(refused("{\"query\": \"a\"}"), "no field \"choices\""));
  EXPECT_TRUE(has(refused("{\"query\": \"a\", \"choices\": [\"b\"], \"gold\": 0}"), "at least two strings"));
  EXPECT_TRUE(has(refused("{\"query\": \"a\", \"choices\": [\"b\", \"\"], \"gold\": 0}"), "with text"));
  EXPECT_TRUE(has(refused("{\"query\": \"a\", \"choices\": [\"b\", \"c\"]}"), "no whole number \"gold\""));
  EXPECT_TRUE(has(refused("{\"query\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": 2}"), "not the index"));
  EXPECT_TRUE(has(refused("[1]"), "the row is no object"));
  EXPECT_TRUE(has(refused("{"), "not JSON"));
  EXPECT_TRUE(has(error_of<FileError>([&] { read("\n"); }), "contains no questions"));
}

TEST_F(Choices, HaveTheLogProbabilitiesOfTheirTokensAlone) {
  const auto questions = read(
      "{\"query\": \"What is it\", \"choices\": [\"an answer\", \"b\", \"something else\"], \"gold\": 1}\n"
      "{\"query\": \"Another one\", \"choices\": [\"yes\", \"no\"], \"gold\": 0}\n");
  const precision::Policy policy = precision::Policy::parse("32-true");
  const ChoiceScores together = answer_choices(source, policy, questions, "q", best_device());
  ASSERT_EQ(together.answers.size(), 2U);
  for (std::size_t q = 0; q < 2; ++q) {
    const ChoiceScores alone =
        answer_choices(source, policy, std::span(questions).subspan(q, 1), "q", best_device());
    EXPECT_EQ(alone.answers[0].log_probs, together.answers[q].log_probs);
    const ChoiceAnswer& a = together.answers[q];
    for (std::size_t i = 0; i < a.log_probs.size(); ++i) {
      EXPECT_LE(a.log_probs[i], a.log_probs[static_cast<std::size_t>(a.chosen)]);
      const auto per_byte = [&](std::size_t c) {
        return a.log_probs[c] / static_cast<double>(questions[q].bytes[c]);
      };
      EXPECT_LE(per_byte(i), per_byte(static_cast<std::size_t>(a.chosen_bytes)));
    }
    EXPECT_EQ(a.chosen_norm, a.chosen_bytes) << "ASCII";
  }
}

TEST(ChoiceScores, AreSharesOfRightAnswers) {
  ChoiceScores scores;
  scores.answers = {{{}, 0, 0, 1, 1}, {{}, 1, 1, 1, 0}, {{}, 2, 2, 2, 2}, {{}, 0, 1, 1, 1}};
  EXPECT_EQ(scores.accuracy(), 0.75);
  EXPECT_EQ(scores.accuracy_norm(), 0.5);
  EXPECT_EQ(scores.accuracy_bytes(), 0.25);
  EXPECT_DOUBLE_EQ(share_error(0.75, 4), 0.25);  // √(0.75 · 0.25 / 3)
  EXPECT_EQ(share_error(1, 1), 0);
}

}  // namespace
}  // namespace mantissa::eval
