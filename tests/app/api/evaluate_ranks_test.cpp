// Evaluations that several ranks share: the figures of one process.
#include <gtest/gtest.h>

#include <fstream>

#include "app/api/on_ranks.h"
#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using mantissa::testing::into;
using mantissa::testing::on_ranks;
using mantissa::testing::TemporaryFolder;

/// Every figure of an evaluation but times, with all digits.
std::string text_of(const Evaluation& e) {
  nlohmann::json j = {
      e.tokens,       e.loss,        e.perplexity,           e.bytes,           e.bits_per_byte,
      e.words,        e.puzzles,     e.well_formed,          e.accuracy,        e.reward,
      e.weight_bytes, e.interrupted, e.last_word_perplexity, e.choice_accuracy, e.choice_accuracy_norm,
      e.notes};
  for (const RowLoss& r : e.rows) j.push_back({r.loss, r.weight});
  for (const LastWord& w : e.last_words) j.push_back({w.right, w.log_prob});
  for (const ChoiceAnswer& c : e.choices) j.push_back({c.log_probs, c.chosen, c.chosen_norm, c.chosen_bytes});
  for (const PuzzleAnswer& a : e.answers) j.push_back({a.people, a.well_formed, a.right, a.text});
  for (const ScoredResponse& r : e.responses)
    j.push_back({r.prompt, r.text, r.reward, r.tokens, r.truncated});
  return j.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

class EvaluationOnRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text, passages, choices;
    for (int i = 0; i < 40; ++i) {
      text += "Ada said that Bob is a knave. ";
      passages += "{\"text\": \"" + std::string(static_cast<std::size_t>(i), 'A') +
                  "da said that Bob is a knight\"}\n";
      choices +=
          "{\"query\": \"Ada " + std::to_string(i) + "\", \"choices\": [\"is\", \"was not\"], \"gold\": 0}\n";
    }
    write("t.txt", text);
    write("p.jsonl", passages);
    write("c.jsonl", choices);
    model_ = train(Config::parse(mantissa::testing::tiny_config(3, "32-true")), into(folder_ / "run")).model;
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  /// Expects of 2, 3 and 4 ranks what one process gives, on each of them.
  template <class Evaluate>
  void expect_same(const Evaluate& evaluate, const std::string& what) const {
    const std::string alone = text_of(evaluate(Ranks()));
    for (const int size : {1, 2, 3, 4}) {
      for (const Evaluation& e : on_ranks(size, evaluate)) EXPECT_EQ(text_of(e), alone) << what << size;
    }
  }
  const TemporaryFolder folder_;
  std::filesystem::path model_;
};

TEST_F(EvaluationOnRanks, HasTheFiguresOfOneProcess) {
  EvaluateOptions o;
  o.data = {(folder_ / "t.txt").string()};
  o.sequence_length = 64;
  o.last_words = (folder_ / "p.jsonl").string();
  o.multiple_choice = (folder_ / "c.jsonl").string();
  for (const char* policy : {"32-true", "bf16-true rounding=stochastic", "fp8-hybrid scaling=current",
                             "bf16-mixed compute=nvfp4"}) {
    const Precision precision{.policy = policy, .rules = {}, .deepspeed = {}};
    expect_same([&](const Ranks& ranks) { return evaluate(model_, o, precision, {.threads = 1}, {}, ranks); },
                policy);
  }
  o.window = 40;
  o.sequence_length = 0;
  expect_same([&](const Ranks& ranks) { return evaluate(model_, o, {}, {.threads = 1}, {}, ranks); },
              "windows ");
}

TEST_F(EvaluationOnRanks, AnswersTheSamePuzzles) {
  EvaluateOptions o;
  o.data = {"kk"};
  o.puzzles = 5;
  o.longest_answer = 12;
  for (const char* policy : {"32-true", "bf16-true rounding=stochastic", "bf16-mixed compute=nvfp4"}) {
    const Precision precision{.policy = policy, .rules = {}, .deepspeed = {}};
    expect_same([&](const Ranks& ranks) { return evaluate(model_, o, precision, {.threads = 1}, {}, ranks); },
                policy);
  }
}

TEST_F(EvaluationOnRanks, MeasuresTheHeldOutRowsOfARun) {
  const Config config = Config::parse(mantissa::testing::tiny_config(3, "32-true"),
                                      {"run.out=" + (folder_ / "run").string(), "data.validation=0.001"});
  expect_same([&](const Ranks& ranks) { return evaluate(config, 2, {.threads = 1}, {}, {}, ranks); }, "run ");
}

TEST_F(EvaluationOnRanks, FindsTheSameNeedles) {
  NeedleOptions o;
  o.lengths = {200, 260};
  o.depths = {0, 0.5, 1};
  o.trials = 2;
  const auto find = [&](const Ranks& ranks) {
    return find_needles(model_, o, {}, {.threads = 1}, {}, ranks).page;
  };
  const std::string alone = find(Ranks());
  for (const int size : {2, 4}) {
    for (const std::string& page : on_ranks(size, find)) EXPECT_EQ(page, alone) << size;
  }
}

TEST_F(EvaluationOnRanks, StopsAtTheRowAtWhichOneProcessStops) {
  const std::filesystem::path large =
      train(Config::parse(mantissa::testing::tiny_config(1, "32-true"),
                          {"model.initializer_range=60", "optimizer.lr=1e-9"}),
            into(folder_ / "large"))
          .model;
  EvaluateOptions o;
  o.data = {(folder_ / "t.txt").string()};
  o.sequence_length = 64;
  const auto message = [&](const Ranks& ranks) -> std::string {
    try {
      evaluate(large, o, {.policy = "16-mixed", .rules = {}, .deepspeed = {}}, {.threads = 1}, {}, ranks);
    } catch (const RunStopped& e) {
      return e.what();
    }
    return "";
  };
  const std::string alone = message(Ranks());
  EXPECT_TRUE(mantissa::testing::has(alone, "eval: the loss of row ")) << alone;
  for (const int size : {2, 3, 4}) {
    for (const std::string& of_rank : on_ranks(size, message)) EXPECT_EQ(of_rank, alone) << size;
  }
}

}  // namespace
}  // namespace mantissa::api
