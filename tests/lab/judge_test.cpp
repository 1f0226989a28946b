// The verdicts on the runs of a comparison, from their losses and rewards.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/compared_runs.h"
#include "mantissa/lab/compare/compare.h"
#include "mantissa/lab/compare/verdict.h"
#include "report/well_formed.h"

namespace mantissa::lab {
namespace {

using test::add_seed, test::answering, test::constant, test::online, test::repeat;

TEST(Judge, StatesTheMeanGapOfThePairsWithItsError) {
  Comparison c;
  c.runs = {constant("a", {5, 2}),        constant("b", {5, 2.0625}),       constant("c", {5, 1.75}),
            constant("d", {5, 2.015625}), constant("e", {5, std::nan("")}), constant("f", {5, 6}),
            constant("g", {5, 2.25})};
  const std::vector<ComparedRun> first = c.runs;
  for (const std::uint64_t seed : {1U, 2U}) {
    for (std::size_t i = 0; i < first.size(); ++i) {
      ComparedRun run = first[i];
      run.steps[1].loss += 1;                                                // of a seed
      run.steps[1].loss += i == 1 ? 0x1p-9 * static_cast<double>(seed) : 0;  // of a pair
      run.steps[1].loss -= i == 3 ? 0x1p-5 * static_cast<double>(seed) : 0;
      run.steps[1].loss += i == 6 ? 0x1p-4 * static_cast<double>(seed) - (seed == 2 ? 0.25 : 0) : 0;
      add_seed(c, i, seed, run);
    }
  }
  judge(c);
  EXPECT_EQ(c.noise, 1);
  EXPECT_EQ(c.runs[1].verdict, "worse by 0.064 ± 0.0011 nats");
  EXPECT_EQ(c.runs[2].verdict, "better by 0.25 ± 0 nats");
  EXPECT_EQ(c.runs[3].verdict, "the same: 0.016 ± 0.018 nats apart, which may be chance");
  EXPECT_EQ(c.runs[4].verdict, "diverged: the loss of step 2 is not finite");
  EXPECT_EQ(c.runs[5].verdict, "diverged: the loss ended at 6, above its first value of 5");
  EXPECT_EQ(c.runs[6].verdict, "not enough runs to tell: worse by 0.23 ± 0.055 nats with 3 seeds");
  c.reseeded.clear();
  judge(c);
  EXPECT_EQ(c.runs[1].verdict, "not enough runs to tell: worse by 0.062 nats with one seed");
  EXPECT_EQ(c.runs[0].verdict, "the reference");
}

TEST(Judge, PairsOnlyEqualSeeds) {
  Comparison c;
  c.runs = {constant("a", {5, 2}), constant("b", {5, 3})};
  c.runs[1].seed = 7;
  judge(c);
  EXPECT_EQ(c.runs[1].verdict, "not enough runs to tell: no seed in common with the reference");
  EXPECT_EQ(c.runs[1].gap, 1);
  EXPECT_FALSE(c.runs[1].paired);
  add_seed(c, 0, 7, constant("a", {5, 2.5}));
  judge(c);
  ASSERT_TRUE(c.runs[1].paired);
  EXPECT_EQ(c.runs[1].paired->seeds, (std::vector<std::uint64_t>{7}));
  EXPECT_EQ(c.runs[1].gap, 0.5);
}

TEST(Judge, ARunThatStopsOrDivergesWithAnySeedIsNotAsGood) {
  Comparison c;
  c.runs = {constant("a", {5, 2}), constant("b", {5, 2}), constant("c", {5, 2})};
  add_seed(c, 0, 1, constant("a", {5, 2}));
  add_seed(c, 1, 1, constant("b", {5, std::nan("")}));
  add_seed(c, 2, 1, constant("c", {5}));
  c.reseeded[2].stopped = "step 2: a weight";
  c.reseeded[2].stopped_at = 2;
  judge(c);
  EXPECT_EQ(c.runs[1].verdict, "diverged: the loss of step 2 is not finite (seed 1)");
  EXPECT_EQ(c.runs[2].verdict, "stopped at step 2: a weight (seed 1)");
}

TEST(Judge, ARunThatSkippedEveryStepDivergedForThatReason) {
  Comparison c;
  c.runs = {constant("a", {5, 2}), constant("b", {5, 5.5}), constant("c", {5, 5.5})};
  for (ComparedStep& step : c.runs[1].steps) step.skipped = true;  // of finite losses
  c.runs[2].steps[0].skipped = true;
  judge(c);
  EXPECT_EQ(c.runs[1].verdict, "diverged: every step was skipped");
  EXPECT_EQ(c.runs[2].verdict, "diverged: the loss ended at 5.5, above its first value of 5");
  EXPECT_EQ(c.verdict.find("It diverged"), std::string::npos);
  std::swap(c.runs[0], c.runs[1]);
  judge(c);
  EXPECT_EQ(c.runs[0].verdict, "the reference, which diverged: every step was skipped");
  EXPECT_NE(c.verdict.find(" It diverged: every step was skipped. "), std::string::npos) << c.verdict;
}

TEST(Judge, RunsThatDifferOnlyInTheirSeedAreNotAComparisonOfPolicies) {
  Comparison c;
  c.runs = {constant("a", {5, 2})};
  add_seed(c, 0, 2, constant("a, run.seed=2", {5, 3}));
  judge(c);
  EXPECT_TRUE(only_seeds_differ(c));
  EXPECT_EQ(
      c.verdict,
      "These 2 runs of a differ only in their seed: this is the noise of seeds, and not a comparison of "
      "policies. Their mean final loss is 2.5000, with a standard deviation of 0.71 nats.");
  EXPECT_EQ(headline_of(c), "Not a comparison of policies: only the seed differs");
  EXPECT_NE(to_text(c).find("run.seed=2"), std::string::npos);
  EXPECT_EQ(test::fault_of(to_html(c)), "");
}

TEST(Judge, NamesWithSemicolonsAreQuotedInTheSentence) {
  Comparison c;
  c.runs = {constant("bf16-mixed; *: compute=f32", {5, 2}), constant("16-mixed, optimizer.lr=1", {5, 2}),
            constant("32-true", {5, 2})};
  judge(c);
  EXPECT_EQ(c.verdict.find("“bf16-mixed; *: compute=f32” is the reference; "), 0U) << c.verdict;
  EXPECT_NE(c.verdict.find("The same: “16-mixed, optimizer.lr=1”; 32-true."), std::string::npos) << c.verdict;
}

TEST(Judge, LongNamesAreNumbersInTheSentence) {
  Comparison c;
  const std::string policy =
      "params=f32 compute=bf16 accumulate=f32 accumulate_block=64 residual=f32 output=f32";
  c.runs = {constant(policy, {5, 2}), constant(policy + " grads=f16", {5, 2}), constant("32-true", {5, 2})};
  judge(c);
  EXPECT_EQ(c.verdict.find("Run 1 is the reference; "), 0U) << c.verdict;
  EXPECT_NE(c.verdict.find("The same: run 2; 32-true."), std::string::npos) << c.verdict;
  EXPECT_EQ(headline_of(c), "Run 2 and 32-true are as good as run 1");
  EXPECT_NE(to_html(c).find("<span class=\"number\">2</span> " + policy + " grads=f16"), std::string::npos);
}

TEST(Headline, NamesTheRun) {
  Comparison c;
  c.runs = {constant("32-true", {5, 2}), constant("bf16-true", {5, 2}), constant("fp8-hybrid", {5, 2})};
  judge(c);
  EXPECT_EQ(headline_of(c), "bf16-true and fp8-hybrid are as good as 32-true");
  c.runs[2].findings = {"50 % of the updates were lost", "2 % of the gradients became zero"};
  c.runs[2].losses = {"updates", "gradients"};
  judge(c);
  EXPECT_EQ(headline_of(c),
            "fp8-hybrid lost updates and gradients; bf16-true and fp8-hybrid are as good as 32-true");
  c.runs[2].steps[1].loss = 4;
  c.runs[1].steps[1].loss = 2.5;
  judge(c);
  EXPECT_EQ(headline_of(c), "fp8-hybrid lost updates and gradients; not enough runs to tell");
  for (std::size_t i = 0; i < 3; ++i) add_seed(c, i, 5, c.runs[i]);
  c.reseeded[1].steps[1].loss = 2;
  judge(c);
  EXPECT_EQ(
      headline_of(c),
      "fp8-hybrid is worse than 32-true and lost updates and gradients; bf16-true is as good as 32-true");
  c.runs[1].stopped = "step 2: x";
  c.runs[1].stopped_at = 2;
  judge(c);
  EXPECT_EQ(headline_of(c),
            "bf16-true stopped; fp8-hybrid is worse than 32-true and lost updates and gradients");
  c.runs[0].stopped = "step 2: x";
  judge(c);
  EXPECT_EQ(headline_of(c), "32-true, the reference, stopped");
}

TEST(Judge, RunsOfRlByTheirRewardsNotByTheLoss) {
  Comparison c;
  c.runs = {online("a", {-3, 1}), online("b", {-3, 2}), online("c", {-3, 0.875}), online("d", {-3, 1.0625})};
  c.runs[1].steps[1].loss = 5;  // the loss of a policy does not measure it
  c.runs[2].steps[1].loss = -5;
  repeat(c);
  EXPECT_EQ(c.measure.name, "reward");
  EXPECT_EQ(c.runs[0].final_value, 1.0);
  EXPECT_EQ(c.runs[1].gap, 1.0);
  EXPECT_EQ(c.runs[1].outcome, Outcome::better);
  EXPECT_EQ(c.runs[1].verdict, "better by a reward of 1 ± 0");
  EXPECT_EQ(c.runs[2].outcome, Outcome::worse);
  c.reseeded[2].curves["reward"].values[1] = 1.125;
  judge(c);
  EXPECT_EQ(c.runs[2].verdict, "the same: a reward of 0.042 ± 0.083 apart, which may be chance");
  EXPECT_NE(c.verdict.find("Judged by the mean reward"), std::string::npos) << c.verdict;
  EXPECT_NE(c.verdict.find("final reward is 1"), std::string::npos) << c.verdict;
  c.runs[3].steps[1].loss = std::nan("");
  judge(c);
  EXPECT_EQ(c.runs[3].outcome, Outcome::diverged);
}

TEST(Judge, RunsOfRlByHeldOutPromptsIfAllHaveThem) {
  Comparison c;
  c.runs = {online("a", {-3, 1}, 0.5), online("b", {-3, 2}, 0.25), online("c", {-3, 1}, 0.5)};
  c.runs[2].steps[1].loss = 1;
  repeat(c);
  EXPECT_EQ(c.measure.name, "validation_accuracy");
  EXPECT_EQ(c.runs[1].verdict, "worse by 25 ± 0 points of accuracy");
  EXPECT_EQ(c.runs[2].verdict, "the same in the last steps");
  EXPECT_NE(c.verdict.find("right answers to held-out prompts"), std::string::npos) << c.verdict;
  EXPECT_NE(c.verdict.find("final accuracy is 50 %"), std::string::npos) << c.verdict;
  EXPECT_NE(to_text(c).find("held-out"), std::string::npos) << to_text(c);
  EXPECT_EQ(nlohmann::json::parse(to_json(c))["measure"], "validation_accuracy");
  EXPECT_EQ(test::fault_of(to_html(c)), "");
  c.runs[2].curves.erase("validation_accuracy");
  judge(c);
  EXPECT_EQ(c.measure.name, "reward");
}

TEST(Judge, RunsOfRlWithinTwoStandardErrorsOfTheirAccuracyAreTheSame) {
  // The standard error of the difference of two shares around p of 192 prompts is √(p (1 − p) · 2 / 192).
  const double error = std::sqrt(0.55 * 0.45 * 2 / 192);
  Comparison c;
  c.runs = {answering("a", 0.5, 192), answering("b", 0.6, 192), answering("c", 0.61, 192),
            answering("e", 0, 192)};
  repeat(c);
  EXPECT_NEAR(*c.runs[1].gap_error, error, 1e-12) << "seeds answer the same prompts";
  EXPECT_EQ(c.runs[1].verdict, "the same: 10 ± 5.1 points of accuracy apart, which may be chance")
      << "0.1 < 2 × 0.0508";
  EXPECT_EQ(c.runs[2].verdict, "better by 11 ± 5.1 points of accuracy");
  EXPECT_EQ(c.runs[3].outcome, Outcome::worse);
  EXPECT_NE(c.verdict.find(
                "Other prompts may change a difference by up to 10 points of accuracy: two standard errors"),
            std::string::npos)
      << c.verdict;
  EXPECT_NEAR(nlohmann::json::parse(to_json(c))["runs"][1]["gap_error"].get<double>(), error, 1e-12);
  EXPECT_TRUE(nlohmann::json::parse(to_json(c))["runs"][0]["gap_error"].is_null());
  // The larger error counts.
  c.reseeded[6].curves["validation_accuracy"].values[0] = 0.4;
  judge(c);
  EXPECT_EQ(c.runs[2].outcome, Outcome::same) << c.runs[2].verdict;
  c.runs = {answering("a", 0.5, 1920), answering("b", 0.6, 1920)};
  repeat(c);
  EXPECT_EQ(c.runs[1].outcome, Outcome::better) << "more prompts are more exact";
  c.runs = {answering("a", 0, 192), answering("b", 1, 192)};
  repeat(c);
  EXPECT_EQ(c.runs[1].verdict.substr(0, 14), "better by 100 ");
}

TEST(Judge, RunsOfRlWithinTwoStandardErrorsOfTheirRewardsAreTheSame) {
  const auto run = [](const char* name, double reward) {
    ComparedRun r = online(name, std::vector<double>(20, reward));
    for (const auto& [metric, value] : {std::pair{"prompts", 8.0}, {"rewards_std", 2.0}}) {
      for (const ComparedStep& s : r.steps) {
        r.curves[metric].steps.push_back(s.step);
        r.curves[metric].values.push_back(value);
      }
    }
    return r;
  };
  Comparison c;
  c.runs = {run("a", 0), run("b", 0.8), run("c", 0.82)};
  judge(c);
  // Two steps of eight prompts, in both runs: √(2 · 2² / 16). Three seeds sample three times as many.
  EXPECT_NEAR(*c.runs[1].gap_error, std::sqrt(0.5), 1e-12);
  repeat(c);
  EXPECT_NEAR(*c.runs[1].gap_error, std::sqrt(0.5 / 3), 1e-12);
  EXPECT_EQ(c.runs[1].outcome, Outcome::same) << "0.8 < 2 × 0.408";
  EXPECT_EQ(c.runs[2].outcome, Outcome::better);
}

TEST(Judge, RunsOfRlWithoutAnyDifferenceOfRewardsAreNotInformative) {
  Comparison c;
  c.runs = {online("a", {-3, -3}), online("b", {-3, -3}), online("c", {-3, -2})};
  for (ComparedRun& run : c.runs) run.curves["rewards_std"] = {{1, 2}, {0, 0}};
  c.runs[2].curves["rewards_std"].values[1] = 1;
  repeat(c);
  EXPECT_EQ(c.runs[1].outcome, Outcome::uninformative);
  EXPECT_EQ(c.runs[1].verdict, "not informative: every reward of every response is -3");
  EXPECT_EQ(c.runs[2].outcome, Outcome::better);
  EXPECT_EQ(to_html(c).find("verdict good"), std::string::npos);
  c.runs.pop_back();
  repeat(c);
  EXPECT_EQ(headline_of(c), "Not informative: every reward of every response is -3");
  EXPECT_NE(to_html(c).find("verdict unknown"), std::string::npos);
  // Equal means of different rewards do not show that.
  c.runs[1].curves["rewards_std"].values[0] = 0.5;
  repeat(c);
  EXPECT_EQ(c.runs[1].outcome, Outcome::same);
}

TEST(Judge, AHandfulOfHeldOutPromptsIsNotInformative) {
  Comparison c;
  c.runs = {answering("a", 0.5, 19), answering("b", 1, 19)};
  repeat(c);
  EXPECT_EQ(c.runs[1].outcome, Outcome::uninformative);
  EXPECT_EQ(c.runs[1].verdict, "not informative: only 19 held-out prompts, of at least 20");
  c.runs = {answering("a", 0.5, 20), answering("b", 1, 20)};
  repeat(c);
  EXPECT_EQ(c.runs[1].outcome, Outcome::better);
}

TEST(Judge, RunsWithOtherHeldOutPromptsAreNotCompared) {
  Comparison c;
  c.runs = {answering("a", 0.5, 64), answering("b", 1, 64), answering("c", 1, 32)};
  c.runs[0].held_out = c.runs[2].held_out = "0.1 of a.jsonl";
  c.runs[1].held_out = "b.jsonl";
  repeat(c);
  EXPECT_EQ(c.runs[1].outcome, Outcome::unknown);
  EXPECT_EQ(c.runs[1].verdict,
            "not comparable: the held-out prompts are others: b.jsonl instead of 0.1 of a.jsonl");
  EXPECT_EQ(c.runs[2].verdict, "not comparable: the held-out prompts are others: 32 prompts instead of 64");
  EXPECT_NE(c.verdict.find("Not comparable: b (the held-out prompts are others"), std::string::npos)
      << c.verdict;
}

TEST(Judge, ReportsThatHeldOutLossesAreOfOtherRows) {
  Comparison c;
  c.runs = {constant("a", {5, 2}), constant("b", {5, 2})};
  c.runs[0].held_out = "a.txt";
  c.runs[1].held_out = "b.txt";
  judge(c);
  EXPECT_NE(c.verdict.find(
                "Measurements on held-out rows cannot be compared, because the rows are others: b (b.txt "
                "instead of a.txt)."),
            std::string::npos)
      << c.verdict;
}

TEST(Judge, ComparesCommonSteps) {
  Comparison c;
  c.runs = {constant("a", {5, 4, 3, 2}), constant("b", {})};
  c.runs[1].steps = {{2, 4.5}, {4, 2.5}, {6, 1}};
  judge(c);
  EXPECT_EQ(differences(c.runs[1], c.runs[0]).size(), 2U);
  EXPECT_EQ(c.runs[1].loss_gap, 0.5);
}

}  // namespace
}  // namespace mantissa::lab
