// Comparisons: equal policies have no gap, known differences show, and directories give the figures of
// training.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/temporary.h"
#include "mantissa/base/error.h"
#include "mantissa/config/run_config.h"
#include "mantissa/data/rows.h"
#include "mantissa/lab/compare/charts.h"
#include "mantissa/lab/compare/directories.h"
#include "mantissa/lab/compare/training.h"
#include "mantissa/run/run.h"
#include "report/well_formed.h"

namespace mantissa::lab {
namespace {

/// Two layers on puzzles.
constexpr const char* kRun = R"(
[run]
steps = 24
[model]
hidden_size = 32
intermediate_size = 48
num_hidden_layers = 2
num_attention_heads = 2
vocab_size = 256
tie_word_embeddings = true
[data]
source = "kk"
sequence_length = 64
validation = 0.05
[batch]
global_batch_size = 4
micro_batch_size = 2
[optimizer]
lr = 1e-2
[schedule]
warmup_steps = 2
)";

const std::shared_ptr<const runtime::Device>& device() {
  static const auto opened = runtime::open_device({.name = "cpu", .instructions = "", .threads = 2});
  return opened;
}

PlannedRun planned(const std::string& policy, const std::vector<std::string>& settings = {}) {
  return {policy, settings, config::parse_config(kRun, "run.toml", settings, {policy, {}}), device()};
}

Comparison compared(std::vector<PlannedRun> runs, int seeds = 0, std::int64_t steps = 0) {
  PlannedComparison plan{.title = "test", .runs = std::move(runs), .reseeded = {}, .steps = steps};
  for (int i = 1; i <= seeds; ++i) {
    plan.reseeded.push_back(plan.runs.front());
    plan.reseeded.back().config.run.seed += static_cast<std::uint64_t>(i);
  }
  return train_and_compare(plan);
}

TEST(Compare, EqualPoliciesAreTheSame) {
  const Comparison c = compared({planned("32-true"), planned("32"),
                                 planned("bf16-mixed", {"batch.micro_batch_size=4"}), planned("bf16-mixed")},
                                0, 6);
  ASSERT_EQ(c.runs.size(), 4U);
  EXPECT_EQ(c.runs[1].loss_gap, 0);
  EXPECT_EQ(c.runs[1].weight_distance, 0);
  EXPECT_EQ(c.runs[1].verdict, "the same: every loss is equal");
  EXPECT_EQ(c.runs[0].outcome, Outcome::reference);
  EXPECT_FALSE(c.noise);
  EXPECT_EQ(c.runs[2].loss_gap, c.runs[3].loss_gap) << "the split of the batch changes no bit";
  EXPECT_EQ(c.runs[2].weight_distance, c.runs[3].weight_distance);
  EXPECT_GT(c.runs[2].weight_distance, 0);
  EXPECT_EQ(c.runs[0].steps.size(), 6U);
  EXPECT_TRUE(c.runs[0].validation_loss);
  EXPECT_GT(c.runs[0].tokens_per_second, 0);
  EXPECT_GT(c.runs[0].peak_bytes, 0);
}

TEST(Compare, LossesAreThoseOfTheTrainer) {
  const PlannedRun run = planned("bf16-mixed");
  const Comparison c = compared({planned("32-true"), run});
  const weights::ModelSource model = weights::find_model(run.config.model);
  train::Trainer trainer(run.config, model, data::load_dataset(run.config, model.config), *device());
  for (const ComparedStep& s : c.runs[1].steps) EXPECT_EQ(trainer.advance()->loss, s.loss) << s.step;
  double sum = 0;
  for (std::size_t i = 21; i < 24; ++i) sum += c.runs[1].steps[i].loss;
  EXPECT_DOUBLE_EQ(*c.runs[1].final_loss, sum / 3) << "the last tenth of 24 steps, rounded up";
  double gap = 0;
  for (std::size_t i = 21; i < 24; ++i) gap += c.runs[1].steps[i].loss - c.runs[0].steps[i].loss;
  EXPECT_DOUBLE_EQ(*c.runs[1].loss_gap, gap / 3);
}

TEST(Compare, NoiseIsTheLargestGapOfTheReseededRuns) {
  const Comparison c = compared({planned("32-true"), planned("bf16-mixed")}, 2, 10);
  ASSERT_EQ(c.reseeded.size(), 2U);
  ASSERT_TRUE(c.noise);
  EXPECT_EQ(*c.noise, std::max(std::abs(*c.reseeded[0].loss_gap), std::abs(*c.reseeded[1].loss_gap)));
  EXPECT_GT(*c.noise, 0);
  EXPECT_EQ(c.runs[1].verdict, "the same within the noise");
  EXPECT_EQ(c.reseeded[0].seed, c.runs[0].seed + 1);
}

/// Updates are about as large as the learning rate, 2e-5. Numbers of bf16 near 0.02 are 2^-13 = 1.2e-4 apart.
TEST(Compare, RoundingToNearestLosesUpdatesThatStochasticRoundingKeeps) {
  const std::vector<std::string> slow = {"optimizer.lr=2e-5"};
  const Comparison c =
      compared({planned("32-true", slow), planned("bf16-true", slow),
                planned("bf16-true rounding=stochastic", slow), planned("bf16-true kahan=true", slow)});
  const ComparedRun &nearest = c.runs[1], &stochastic = c.runs[2], &kahan = c.runs[3];
  EXPECT_GT(nearest.updates_lost, 0.9);
  ASSERT_FALSE(nearest.findings.empty());
  EXPECT_NE(nearest.findings[0].find("were lost"), std::string::npos);
  EXPECT_TRUE(stochastic.findings.empty());
  EXPECT_TRUE(kahan.findings.empty());
  EXPECT_EQ(kahan.updates_lost, 0);
  EXPECT_EQ(nearest.outcome, Outcome::worse);
  EXPECT_GT(*nearest.loss_gap, 2 * std::abs(*stochastic.loss_gap));
  EXPECT_GT(*nearest.loss_gap, 2 * std::abs(*kahan.loss_gap));
  EXPECT_NE(c.verdict.find("numeric health has findings for bf16-true ("), std::string::npos) << c.verdict;
}

/// Gradients of weights this small are below the smallest subnormal number of f16 without a loss scale.
TEST(Compare, GradientsVanishInF16WithoutALossScale) {
  const std::vector<std::string> small = {"model.initializer_range=0.002"};
  const Comparison c = compared(
      {planned("32-true", small), planned("16-mixed", small), planned("16-mixed loss_scale=none", small)});
  EXPECT_GT(*c.runs[2].weight_distance, 4 * *c.runs[1].weight_distance);
  EXPECT_GT(std::abs(*c.runs[2].loss_gap), std::abs(*c.runs[1].loss_gap));
  EXPECT_TRUE(c.runs[1].findings.empty());
}

TEST(Compare, ARunThatStopsIsComparedUpToItsLastStep) {
  const Comparison c = compared({planned("32-true"), planned("16-true", {"optimizer.lr=3e3"})});
  const ComparedRun& run = c.runs[1];
  EXPECT_EQ(run.outcome, Outcome::stopped);
  EXPECT_EQ(run.stopped_at, static_cast<std::int64_t>(run.steps.size()) + 1);
  EXPECT_EQ(run.verdict.find("stopped at step " + std::to_string(run.stopped_at) + ": "), 0U) << run.verdict;
  EXPECT_EQ(run.verdict.find("step", 10), run.verdict.find("step"))
      << "the step occurs once: " << run.verdict;
  EXPECT_NE(c.verdict.find("Stopped: 16-true (at step "), std::string::npos) << c.verdict;
}

TEST(Compare, ARunThatCannotStartIsReported) {
  PlannedRun wrong = planned("32-true");
  wrong.name = "wrong";
  wrong.config.data.source = {"/does/not/exist"};
  const Comparison c = compared({planned("32-true"), wrong}, 0, 2);
  EXPECT_EQ(c.runs[1].verdict.find("did not start: "), 0U) << c.runs[1].verdict;
  EXPECT_THROW(compared({wrong, planned("32-true")}, 0, 2), FileError);
}

TEST(Compare, ALossThatRisesDiverges) {
  const Comparison c = compared({planned("32-true"), planned("32-true", {"optimizer.lr=30"})});
  EXPECT_EQ(c.runs[1].outcome, Outcome::diverged) << c.runs[1].verdict;
  EXPECT_NE(c.runs[1].verdict.find("above its first value of"), std::string::npos) << c.runs[1].verdict;
}

ComparedRun constant(const std::string& name, std::vector<double> losses) {
  ComparedRun run;
  run.name = name;
  for (std::size_t i = 0; i < losses.size(); ++i)
    run.steps.push_back({static_cast<std::int64_t>(i) + 1, losses[i]});
  return run;
}

TEST(Judge, StatesTheGapInUnitsOfTheNoise) {
  Comparison c;
  c.runs = {constant("a", {5, 2}),        constant("b", {5, 2.0625}),       constant("c", {5, 1.75}),
            constant("d", {5, 2.015625}), constant("e", {5, std::nan("")}), constant("f", {5, 6})};
  c.reseeded = {constant("s", {5, 1.984375})};
  judge(c);
  EXPECT_EQ(c.noise, 0.015625);
  EXPECT_EQ(c.runs[1].verdict, "worse by 0.062 nats, 4 × the noise");
  EXPECT_EQ(c.runs[2].verdict, "better by 0.25 nats, 16 × the noise");
  EXPECT_EQ(c.runs[3].verdict, "the same within the noise");
  EXPECT_EQ(c.runs[4].verdict, "diverged: the loss of step 2 is not finite");
  EXPECT_EQ(c.runs[5].verdict, "diverged: the loss ended at 6, above its first value of 5");
  c.reseeded.clear();
  judge(c);
  EXPECT_EQ(c.runs[1].verdict, "worse by 0.062 nats");
  EXPECT_EQ(c.runs[0].verdict, "the reference");
  EXPECT_NE(c.verdict.find("not measured"), std::string::npos);
}

ComparedRun online(const std::string& name, std::vector<double> rewards,
                   std::optional<double> held_out = {}) {
  ComparedRun run = constant(name, std::vector<double>(rewards.size(), 0.001));
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    run.curves["reward"].steps.push_back(run.steps[i].step);
    run.curves["reward"].values.push_back(rewards[i]);
  }
  if (held_out) run.curves["validation_accuracy"] = {{run.steps.back().step}, {*held_out}};
  return run;
}

TEST(Judge, RunsOfRlByTheirRewardsNotByTheLoss) {
  Comparison c;
  c.runs = {online("a", {-3, 1}), online("b", {-3, 2}), online("c", {-3, 0.875}), online("d", {-3, 1.0625})};
  c.runs[1].steps[1].loss = 5;  // the loss of a policy is no measure of it
  c.runs[2].steps[1].loss = -5;
  c.reseeded = {online("s", {-3, 1.125})};
  judge(c);
  EXPECT_EQ(c.measure.name, "reward");
  EXPECT_EQ(c.noise, 0.125);
  EXPECT_EQ(c.runs[0].final_value, 1.0);
  EXPECT_EQ(c.runs[1].gap, 1.0);
  EXPECT_EQ(c.runs[1].outcome, Outcome::better);
  EXPECT_EQ(c.runs[1].verdict, "better by a reward of 1, 8 × the noise");
  EXPECT_EQ(c.runs[2].verdict, "the same within the noise");
  EXPECT_EQ(c.runs[3].verdict, "the same within the noise");
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
  judge(c);
  EXPECT_EQ(c.measure.name, "validation_accuracy");
  EXPECT_EQ(c.runs[1].verdict, "worse by 25 points of accuracy");
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
  const auto run = [](const char* name, double accuracy, double prompts) {
    ComparedRun r = online(name, {-3, 1}, accuracy);
    r.curves["validation_prompts"] = {{0, 2}, {prompts, prompts}};
    return r;
  };
  const double error = std::sqrt(0.55 * 0.45 * 2 / 192);
  Comparison c;
  c.runs = {run("a", 0.5, 192), run("b", 0.6, 192), run("c", 0.61, 192), run("d", 0.6, 1920),
            run("e", 0, 192)};
  judge(c);
  EXPECT_NEAR(*c.runs[1].gap_error, error, 1e-12);
  EXPECT_EQ(c.runs[1].verdict, "the same within the noise") << "0.1 < 2 × 0.0508";
  EXPECT_EQ(c.runs[2].verdict, "better by 11 points of accuracy, 1.1 × the noise");
  EXPECT_EQ(c.runs[3].outcome, Outcome::better) << "more prompts are more exact";
  EXPECT_EQ(c.runs[4].outcome, Outcome::worse);
  EXPECT_NE(c.verdict.find("Other prompts may change it by up to 10 points of accuracy: two standard errors"),
            std::string::npos)
      << c.verdict;
  EXPECT_NEAR(nlohmann::json::parse(to_json(c))["runs"][1]["gap_error"].get<double>(), error, 1e-12);
  EXPECT_TRUE(nlohmann::json::parse(to_json(c))["runs"][0]["gap_error"].is_null());
  // The larger noise counts.
  c.reseeded = {run("s", 0.75, 192)};
  judge(c);
  EXPECT_EQ(c.runs[2].verdict, "the same within the noise");
  EXPECT_EQ(c.runs[4].verdict, "worse by 50 points of accuracy, 2 × the noise");
  c.reseeded.clear();
  c.runs = {run("a", 0, 192), run("b", 1, 192)};
  judge(c);
  EXPECT_EQ(c.runs[1].verdict.substr(0, 33), "better by 100 points of accuracy,");
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
  c.runs = {run("a", 0), run("b", 1.4), run("c", 1.5)};
  judge(c);
  // Two steps of eight prompts, in both runs: √(2 · 2² / 16).
  EXPECT_NEAR(*c.runs[1].gap_error, std::sqrt(0.5), 1e-12);
  EXPECT_EQ(c.runs[1].outcome, Outcome::same);
  EXPECT_EQ(c.runs[2].outcome, Outcome::better);
}

TEST(Judge, ComparesCommonSteps) {
  Comparison c;
  c.runs = {constant("a", {5, 4, 3, 2}), constant("b", {})};
  c.runs[1].steps = {{2, 4.5}, {4, 2.5}, {6, 1}};
  judge(c);
  EXPECT_EQ(differences(c.runs[1], c.runs[0]).size(), 2U);
  EXPECT_EQ(c.runs[1].loss_gap, 0.5);
}

TEST(Compare, JsonHasNullForNumbersThatAreNotFinite) {
  Comparison c;
  c.runs = {constant("a \"b\", c", {5, 2}), constant("\xff", {5, std::nan("")})};
  judge(c);
  const nlohmann::json json = nlohmann::json::parse(to_json(c));
  for (const char* key :
       {"policy", "losses", "final_loss", "loss_gap", "noise", "tokens_per_second", "peak_bytes", "skipped",
        "verdict", "name", "settings", "seed", "steps", "validation_loss", "stopped", "weight_distance",
        "updates_lost", "findings", "outcome"}) {
    EXPECT_TRUE(json["runs"][0].contains(key)) << key;
  }
  EXPECT_EQ(json["runs"][1]["losses"], nlohmann::json::parse("[5.0, null]"));
  EXPECT_EQ(to_csv(c).find("step,\"a \"\"b\"\", c\",\xff\n1,"), 0U);
  EXPECT_NE(to_csv(c).find("\n2,2,\n"), std::string::npos) << to_csv(c);
}

TEST(ComparePage, IsWellFormedForAnyNamesAndNumbers) {
  Comparison c;
  c.title = "<b>&";
  EXPECT_EQ(test::fault_of(to_html(c)), "");
  c.runs = {constant("<script>", {5, 2})};
  for (int i = 0; i < 13; ++i)
    c.runs.push_back(constant("\"run\" & '" + std::to_string(i), {5, 2.0 + i, std::nan("")}));
  c.runs[1].steps[2] = {3, 2, true};
  c.runs[2].steps.clear();
  c.runs[3].stopped = "step 4: a < b";
  c.runs[3].stopped_at = 4;
  c.runs[4].findings = {"97 % of <x>"};
  c.runs[4].updates_lost = 0.97;
  c.runs[5].weight_distance = 1e30;
  c.runs[5].peak_bytes = 1e9;
  c.runs[6].tokens_per_second = INFINITY;
  c.reseeded = {constant("seed", {5, 2.25})};
  judge(c);
  const std::string html = to_html(c);
  EXPECT_EQ(test::fault_of(html), "");
  EXPECT_NE(html.find("Loss, runs 11 to 13"), std::string::npos) << "five lines and the reference in a chart";
  EXPECT_NE(html.find("97 % of &lt;x&gt;"), std::string::npos);
  EXPECT_EQ(html.find("http"), std::string::npos) << "it needs no network";
}

TEST(ComparePage, DrawsTheGapAsTheLastMean) {
  const std::vector<StepDifference> all = {
      {1, 4}, {2, std::nan("")}, {3, 2}, {4, 8}, {5, 1}, {6, 1}, {7, 1}, {8, 1}, {9, 1}, {10, 2}, {11, 4}};
  const std::vector<StepDifference> means = trailing_means(all);
  ASSERT_EQ(means.size(), 11U);
  EXPECT_EQ(means[0].difference, 4);
  EXPECT_EQ(means[1].difference, 4) << "a difference that is not finite does not count";
  EXPECT_EQ(means[3].difference, 5);
  EXPECT_EQ(means[10].difference, 3) << "11 steps: the last two";
  EXPECT_EQ(means[10].step, 11);
}

class ComparedDirectories : public test::TemporaryFolder {
 protected:
  std::filesystem::path trained(const std::string& name, const PlannedRun& run) const {
    const weights::ModelSource model = weights::find_model(run.config.model);
    run::Start start{.config = run.config,
                     .told = {},
                     .source = model,
                     .task = train::corpus_task(data::load_dataset(run.config, model.config)),
                     .directory = {.out = folder / name, .overwrite = false, .resume = {}}};
    run::train(std::move(start), {}, *device(), {});
    return folder / name;
  }
};

TEST_F(ComparedDirectories, HaveTheFiguresOfTraining) {
  PlannedRun reference = planned("32-true"), lowered = planned("bf16-true"), seed = reference;
  seed.config.run.seed += 1;
  const Comparison trained_now = compared({reference, lowered}, 1);
  const std::vector<std::filesystem::path> paths = {trained("a", reference), trained("b", lowered),
                                                    trained("c", seed)};
  const Comparison read = compare_directories(paths, *device());
  ASSERT_EQ(read.runs.size(), 2U);
  ASSERT_EQ(read.reseeded.size(), 1U) << "a run that differs only in its seed measures the noise";
  // metrics.jsonl has 9 significant digits, and losses are below 10.
  constexpr double kDigits = 0.5e-8;
  for (std::size_t i = 0; i < 2; ++i) {
    const ComparedRun &a = trained_now.runs[i], &b = read.runs[i];
    ASSERT_EQ(a.steps.size(), b.steps.size());
    for (std::size_t s = 0; s < a.steps.size(); ++s) EXPECT_NEAR(a.steps[s].loss, b.steps[s].loss, kDigits);
    EXPECT_NEAR(*a.validation_loss, *b.validation_loss, kDigits);
    EXPECT_NEAR(*a.updates_lost, *b.updates_lost, kDigits);
    EXPECT_EQ(a.weight_distance, b.weight_distance);
    EXPECT_EQ(a.skipped, b.skipped);
    EXPECT_EQ(a.outcome, b.outcome);
    EXPECT_TRUE(b.peak_bytes);
  }
  EXPECT_NEAR(*trained_now.noise, *read.noise, 2 * kDigits);
  EXPECT_NEAR(*trained_now.runs[1].loss_gap, *read.runs[1].loss_gap, 2 * kDigits);

  std::filesystem::remove_all(folder / "b/state");
  EXPECT_EQ(compare_directories(paths, *device()).runs[1].weight_distance, read.runs[1].weight_distance)
      << "the model in f32 has the bf16 weights";
  std::filesystem::remove_all(folder / "b/model");
  EXPECT_FALSE(compare_directories(paths, *device()).runs[1].weight_distance);
  std::filesystem::remove(folder / "a/start.safetensors");
  std::filesystem::remove(folder / "a/summary.json");
  const Comparison less = compare_directories(paths, *device());
  EXPECT_FALSE(less.runs[0].weight_distance);
  EXPECT_FALSE(less.runs[0].peak_bytes);
}

TEST_F(ComparedDirectories, ThatAreDamagedAreErrors) {
  const PlannedRun run = planned("32-true", {"run.steps=2"});
  const std::filesystem::path a = trained("a", run);
  const auto fails = [&](const std::filesystem::path& other) {
    const std::vector<std::filesystem::path> paths = {a, other};
    EXPECT_THROW(compare_directories(paths, *device()), Error) << other;
  };
  fails(folder / "nothing");
  fails(a / "metrics.jsonl");
  const auto damaged = [&](const char* file, std::string_view contents) {
    std::filesystem::remove_all(folder / "b");
    std::filesystem::copy(a, folder / "b", std::filesystem::copy_options::recursive);
    test::put(folder / "b" / file, contents);
    fails(folder / "b");
  };
  damaged("metrics.jsonl", "");
  damaged("metrics.jsonl", "[]\n");
  damaged("metrics.jsonl", "{\"step\":2,\"loss\":1}\n{\"step\":1,\"loss\":1}\n");
  damaged("config.toml", "[");
  damaged("config.toml", "[run]\nsteps = \"x\"\n");
  damaged("summary.json", "[1]");
  damaged("summary.json", "{");
  damaged("state/step-00000002/state.safetensors", "x");
}

TEST_F(ComparedDirectories, WithStrangeValuesHaveNoNumbers) {
  const std::filesystem::path a = trained("a", planned("32-true", {"run.steps=2"}));
  std::filesystem::remove(a / "health.jsonl");  // earlier versions had none
  test::put(a / "metrics.jsonl",
            "{\"step\":1,\"loss\":\"x\",\"tokens_per_second\":[],\"skipped\":7}\n{\"step\":2,\"loss\":null,"
            "\"health\":{\"model.norm.weight\":3}}\n");
  test::put(a / "summary.json", "{\"predicted_peak_bytes\":\"many\",\"skipped\":-1e300}");
  const std::vector<std::filesystem::path> paths = {a, a};
  const Comparison c = compare_directories(paths, *device());
  EXPECT_FALSE(c.runs[1].final_loss);
  EXPECT_FALSE(c.runs[1].peak_bytes);
  EXPECT_FALSE(c.runs[1].updates_lost);
  EXPECT_EQ(c.runs[1].outcome, Outcome::diverged);
  EXPECT_FALSE(to_text(c).empty());
}

}  // namespace
}  // namespace mantissa::lab
