// Knights-and-Knaves puzzles of files and of the generator: which are asked, with which prompt, and the
// scores.
#include "mantissa/generate/eval/answers.h"

#include <gtest/gtest.h>

#include "generate/eval/tiny_model.h"
#include "mantissa/core/base/error.h"
#include "mantissa/generate/eval/evaluate.h"
#include "text/rows/temp_files.h"

namespace mantissa::eval {
namespace {

using mantissa::testing::best_device;
using text::error_of;
using text::has;

/// Returns a line of puzzles of `people` people; `number` is in its prompt.
std::string puzzle_line(int people, int number) {
  nlohmann::ordered_json row;
  row["prompt"] =
      "<|im_start|>user\nPuzzle " + std::to_string(number) + "?<|im_end|>\n<|im_start|>assistant\n<think>";
  std::string solution;
  for (int i = 0; i < people; ++i) {
    row["names"].push_back("N" + std::to_string(i));
    solution += (i == 0 ? "(1) N" : "\n(2) N") + std::to_string(i) + " is a knave";
  }
  row["solution_text_format"] = solution;
  return row.dump() + "\n";
}

std::vector<std::int64_t> people_in(const std::vector<AskedQuestion>& questions) {
  std::vector<std::int64_t> people;
  for (const AskedQuestion& q : questions) people.push_back(q.row.people);
  return people;
}

class QuestionsOfFiles : public ::testing::Test {
 protected:
  const text::TempFiles files;
  const std::string path =
      files.write("p.jsonl", puzzle_line(3, 0) + puzzle_line(3, 1) + puzzle_line(3, 2) + puzzle_line(2, 3) +
                                 puzzle_line(5, 4) + puzzle_line(5, 5));
  const weights::ModelSource source = tiny_model({{"max_position_embeddings", 300}});
};

TEST_F(QuestionsOfFiles, AreTheFirstOfEachNumberOfPeopleInEqualShares) {
  using People = std::vector<std::int64_t>;
  EXPECT_EQ(people_in(read_questions({path}, {4, 0, 8})), (People{2, 3, 5, 3}));
  EXPECT_EQ(people_in(read_questions({path}, {100, 0, 8})), (People{2, 3, 5, 3, 5, 3})) << "all";
  const auto three = read_questions({path}, {2, 3, 3});
  EXPECT_EQ(people_in(three), (People{3, 3}));
  EXPECT_TRUE(three[1].where.ends_with("p.jsonl:2"));
  EXPECT_TRUE(has(error_of<ConfigError>([&] {
                    read_questions({path}, {1, 6, 8});
                  }),
                  "no question is about 6 to 8"));
  const std::string empty = files.write("empty.jsonl", "\n");
  EXPECT_EQ(error_of<ConfigError>([&] {
              read_questions({empty}, {1, 0, 8});
            }),
            empty + ": contains no questions");
}

TEST_F(QuestionsOfFiles, RefuseARowThatIsNotOne) {
  const std::string other =
      files.write("o.jsonl", puzzle_line(2, 0) + "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  EXPECT_TRUE(has(error_of<FileError>([&] {
                    read_questions({other}, {5, 0, 8});
                  }),
                  "o.jsonl:2: the row is not"));
}

TEST_F(QuestionsOfFiles, AreAskedUnderATemplateOrAsTheyAre) {
  const auto question = read_questions({path}, {1, 3, 3}).front();
  const auto asked = [&](const std::string& name) {
    const QuestionFormat format(source, name);
    std::string text;
    for (const std::int32_t id : format.prompt(question, 256).ids) text += static_cast<char>(id);
    return text;
  };
  EXPECT_EQ(asked("none"), "<|im_start|>user\nPuzzle 0?<|im_end|>\n<|im_start|>assistant\n<think>");
  EXPECT_EQ(asked("chatml"), asked("none")) << "a template renders the messages of a ChatML prompt";
  const std::string mistral = asked("mistral");
  EXPECT_TRUE(has(mistral, "[INST]")) << mistral;
  EXPECT_TRUE(mistral.ends_with("<think>")) << mistral << ": the prompt begins the answer";
}

TEST_F(QuestionsOfFiles, HaveAnswersThatEndWithTheTurnOfTheTemplate) {
  const QuestionFormat rwkv(source, "rwkv"), none(source, "none");
  const std::string made = "a\n\nUser:";
  const rollout::OnToken on_token = rwkv.until_turn_ends(1);
  bool goes_on = true;
  for (const char c : made) {
    EXPECT_TRUE(goes_on);
    goes_on = on_token(0, static_cast<unsigned char>(c), 0);
  }
  EXPECT_FALSE(goes_on);
  const std::vector<std::int32_t> ids(made.begin(), made.end());
  EXPECT_EQ(rwkv.answer({}, ids), "a");
  EXPECT_FALSE(none.until_turn_ends(1));
  EXPECT_EQ(none.answer({}, ids), made);
}

TEST_F(QuestionsOfFiles, AreAnsweredAndScored) {
  Files f{{path}};
  f.questions = 5;
  f.people_max = 4;
  f.longest_answer = 8;
  f.chat_template = "chatml";
  const Evaluation e = evaluate_model(source, precision::Policy::parse("bf16-mixed"), f, best_device());
  ASSERT_EQ(e.answers.answers.size(), 4U) << "no more have at most four people";
  EXPECT_EQ(e.answers.accuracy(), 0) << "a random model knows nothing";
  EXPECT_EQ(e.answers.answers[0].text.substr(0, 7), "<think>") << "the answer includes what the prompt began";
  EXPECT_EQ(e.rows.size(), 4U) << "the loss is that of the same questions";
  const std::vector<PeopleScore> scores = e.answers.by_people();
  ASSERT_EQ(scores.size(), 2U);
  EXPECT_EQ(scores[0].people, 2);
  EXPECT_EQ(scores[1].questions, 3);
  f.people_max = 0;
  f.questions = 2;
  f.names = {"kk"};
  EXPECT_EQ(evaluate_model(tiny_model({{"max_position_embeddings", 600}}),
                           precision::Policy::parse("32-true"), f, best_device())
                .answers.answers.size(),
            2U)
      << "generated puzzles under a template";
}

TEST_F(QuestionsOfFiles, NeedPositionsForAnAnswer) {
  Files f{{path}};
  f.questions = 1;
  f.sequence_length = 32;
  const weights::ModelSource small = tiny_model({{"max_position_embeddings", 40}});
  f.chat_template = "none";
  EXPECT_TRUE(has(error_of<ConfigError>(
                      [&] { evaluate_model(small, precision::Policy::parse("32-true"), f, best_device()); }),
                  "the model only 40 positions"));
}

TEST(AnswerScores, CountAnswersByPeople) {
  AnswerScores s;
  s.answers = {{3, true, true, ""}, {2, true, false, ""}, {3, false, false, ""}, {3, true, false, ""}};
  EXPECT_EQ(s.accuracy(), 0.25);
  EXPECT_EQ(s.well_formed(), 0.75);
  const auto scores = s.by_people();
  ASSERT_EQ(scores.size(), 2U);
  EXPECT_EQ(scores[1].people, 3);
  EXPECT_EQ(scores[1].questions, 3);
  EXPECT_EQ(scores[1].well_formed, 2);
  EXPECT_EQ(scores[1].right, 1);
}

}  // namespace
}  // namespace mantissa::eval
