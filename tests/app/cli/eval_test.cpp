// mantissa eval: last words, several policies, and their table.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/cli/run_program.h"
#include "mantissa/core/base/words.h"

namespace mantissa::testing {
namespace {

using nlohmann::json;

class EvalProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    write(folder_ / "run.toml", tiny_config(3, "32-true"));
    ASSERT_EQ(mantissa(folder_, "train run.toml --out r --quiet").code, 0);
    std::string text, passages;
    for (int i = 0; i < 40; ++i) {
      text += "Ada said that Bob is a knave. ";
      passages += "{\"text\": \"Ada said " + std::to_string(i) + " that Bob is a knight\"}\n";
    }
    write(folder_ / "t.txt", text);
    write(folder_ / "p.jsonl", passages);
  }
  const TemporaryFolder folder_;
};

TEST_F(EvalProgram, PredictsLastWords) {
  const Result r = mantissa(folder_, "eval r --last-word p.jsonl --limit 30");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(has(r.out, "of 30 passages right, perplexity ")) << r.out;
  EXPECT_FALSE(has(r.out, "loss")) << r.out;
  const Result both = mantissa(folder_, "eval r --last-word p.jsonl --data t.txt --json");
  ASSERT_EQ(both.code, 0) << both.err;
  EXPECT_EQ(both.err, "");
  const json all = json::parse(both.out);
  EXPECT_EQ(all["last_words"]["passages"], 40);
  EXPECT_EQ(all["last_words"]["right"].size(), 40U);
  EXPECT_EQ(all["last_words"]["log_probs"].size(), 40U);
  EXPECT_GT(all["last_words"]["perplexity"], 1);
  EXPECT_EQ(all["bytes"], all["tokens"]);
  EXPECT_GT(all["weight_bytes"], 0);
  EXPECT_EQ(mantissa(folder_, "eval r --last-word p.jsonl --data t.txt --json").out, both.out);
}

TEST_F(EvalProgram, PrintsATableOfPoliciesIn80Columns) {
  const Result r =
      mantissa(folder_,
               "eval r --data t.txt --last-word p.jsonl --sequence-length 64 --precision "
               "'32-true, bf16-mixed,fp8-hybrid' --precision 'bf16-mixed compute=nvfp4' --precision "
               "'params=f32 compute=bf16 accumulate=f32 residual=f32 output=f32 kv=f32'");
  ASSERT_EQ(r.code, 0) << r.err;
  const Result puzzles = mantissa(
      folder_, "eval r --data kk --puzzles 1 --last-word p.jsonl --limit 5 --precision 32-true,bf16-mixed");
  ASSERT_EQ(puzzles.code, 0) << puzzles.err;
  EXPECT_TRUE(has(puzzles.out, " puzzles ")) << puzzles.out;
  std::istringstream wide(puzzles.out), lines(r.out);
  for (std::string line; std::getline(wide, line);) EXPECT_LE(width_of(line), 80U) << line;
  std::size_t changes = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(width_of(line), 80U) << line;
    changes += has(line, " ± ") && has(line, " pt ") ? 1 : 0;
  }
  EXPECT_EQ(changes, 4U) << r.out;
  for (const char* part : {"policy ", "bits/byte", "last words", "tok/s", "\n32-true ", "\nfp8-hybrid ",
                           "change from 32-true", "nats per token", "40 passages of p.jsonl"})
    EXPECT_TRUE(has(r.out, part)) << part << "\n" << r.out;
  EXPECT_TRUE(has(r.err, "policy 5 of 5: params=f32")) << r.err;
}

TEST_F(EvalProgram, PrintsPoliciesAsJsonAlone) {
  const Result r =
      mantissa(folder_, "eval r --data t.txt --last-word p.jsonl --precision 32-true,bf16-mixed --json");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  const json policies = json::parse(r.out)["policies"];
  ASSERT_EQ(policies.size(), 2U);
  EXPECT_EQ(policies[0]["policy"], "32-true");
  EXPECT_FALSE(policies[0].contains("change"));
  EXPECT_EQ(policies[1]["policy"], "bf16-mixed");
  EXPECT_GT(policies[1]["tokens_per_second"], 0);
  const json change = policies[1]["change"];
  EXPECT_GT(change["loss"]["standard_error"], 0);
  EXPECT_EQ(change["last_word_accuracy"]["pairs"], 40);
  EXPECT_TRUE(change.contains("gained") && change.contains("lost") && change.contains("last_word_log_prob"));
  const json alone = json::parse(mantissa(folder_, "eval r --data t.txt --precision bf16-mixed --json").out);
  EXPECT_EQ(alone["loss"], policies[1]["loss"]);
}

TEST_F(EvalProgram, ComparesPoliciesOverTheHeldOutRowsOfARun) {
  const Result r = mantissa(folder_, "eval r --puzzles 0 --precision 32-true,bf16-true --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const json policies = json::parse(r.out)["policies"];
  ASSERT_EQ(policies.size(), 2U);
  EXPECT_EQ(policies[0]["loss"], json::parse(mantissa(folder_, "eval r --puzzles 0 --json").out)["loss"]);
  EXPECT_NE(policies[0]["loss"], policies[1]["loss"]);
}

TEST_F(EvalProgram, TakesCommasOfASpellingForOnePolicy) {
  const Result r = mantissa(folder_, "eval r --data t.txt --precision p=f32,c=bf16,o=f32 --json");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_FALSE(json::parse(r.out).contains("policies"));
}

TEST_F(EvalProgram, KeepsTheResultsOfOtherPoliciesIfOneFails) {
  ASSERT_EQ(
      mantissa(folder_,
               "train run.toml --out big --quiet --set model.initializer_range=60 --set optimizer.lr=1e-9")
          .code,
      0);
  const Result r = mantissa(folder_, "eval big --data t.txt --precision 32-true,16-mixed,bf16-mixed --json");
  EXPECT_EQ(r.code, 1);
  EXPECT_EQ(r.err.find("mantissa: 16-mixed: eval: the loss of row "), 0U) << r.err;
  const json policies = json::parse(r.out)["policies"];
  ASSERT_EQ(policies.size(), 3U);
  EXPECT_TRUE(policies[1].contains("error"));
  EXPECT_TRUE(policies[2].contains("change"));
  const Result words =
      mantissa(folder_, "eval big --last-word p.jsonl --precision 32-true,16-mixed,bf16-mixed");
  EXPECT_EQ(words.code, 1);
  EXPECT_TRUE(has(words.err, "the logits of the last word of p.jsonl:1 are not finite")) << words.err;
  EXPECT_TRUE(has(words.out, "\n16-mixed                  stopped\n")) << words.out;
}

TEST_F(EvalProgram, AnswersThePuzzlesOfAFileByNumberOfPeople) {
  ASSERT_EQ(mantissa(folder_, "data kk --count 30 --people-max 4 --split test --out kk.jsonl").code, 0);
  const std::string options = "--puzzles 6 --max-new-tokens 12 --precision 32-true,bf16-mixed";
  const Result r = mantissa(folder_, "eval r --data kk.jsonl --template none " + options);
  ASSERT_EQ(r.code, 0) << r.err;
  for (const char* part : {" puzzles ", "right, by people        ", "       2       3       4\n",
                           "bf16-mixed                   0 %     0 %     0 %\n", "share of 6 puzzles"})
    EXPECT_TRUE(has(r.out, part)) << part << "\n" << r.out;
  const json policies =
      json::parse(mantissa(folder_, "eval r --data kk.jsonl --json " + options).out)["policies"];
  EXPECT_EQ(policies[1]["by_people"].size(), 3U);
  EXPECT_EQ(policies[1]["answers"].size(), 6U);
  EXPECT_TRUE(policies[1]["answers"][0].contains("text"));
}

TEST_F(EvalProgram, RefusesWhatItCannotEvaluate) {
  write(folder_ / "bad.jsonl", "{\"text\": \"a b\"}\n{\"text\": \"word\"}\n");
  const std::pair<const char*, const char*> cases[] = {
      {"eval r --last-word bad.jsonl", "bad.jsonl:2: the passage has no two words"},
      {"eval r --last-word none.jsonl", "none.jsonl"},
      {"eval r --last-word p.jsonl --limit 0", "--limit 0"},
      {"eval r --data t.txt --limit 3", "--last-word"},
      {"eval r --data p.jsonl --puzzles 3", "p.jsonl:1: "},
      {"eval r --last-word p.jsonl --puzzles 3", "--puzzles: requires --data"},
      {"eval r --data kk --people-min 4 --people-max 3", "at most --people-max"},
      {"eval run.toml --last-word p.jsonl", "a config has its own data"},
      {"eval r --data t.txt --precision 32-true,bf17-mixed", "did you mean"},
      {"eval r --data t.txt --precision 32-true,,bf16-mixed", "a policy is empty"},
      {"eval r --data t.txt --precision ''", "the policy is empty"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Result r = mantissa(folder_, arguments);
    EXPECT_EQ(r.code, 2) << arguments << r.err;
    EXPECT_TRUE(has(r.err, expected)) << arguments << "\n" << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << arguments << "\n" << r.err;
    EXPECT_EQ(r.out, "") << arguments;
  }
}

}  // namespace
}  // namespace mantissa::testing
