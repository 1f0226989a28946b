// Comparisons: equal policies have no gap, known differences show, and directories give the figures of
// training.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/disk/temporary.h"
#include "lab/small_run.h"
#include "mantissa/core/base/error.h"
#include "mantissa/lab/compare/directories.h"
#include "mantissa/lab/compare/training.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/rows.h"
#include "mantissa/train/run/run.h"

namespace mantissa::lab {
namespace {

const std::shared_ptr<const runtime::Device>& device() {
  static const auto opened = runtime::open_device({.name = "cpu", .instructions = "", .threads = 2});
  return opened;
}

PlannedRun planned(const std::string& policy, const std::vector<std::string>& settings = {}) {
  std::vector<std::string> all = {"run.steps=24", "data.validation=0.05", "optimizer.lr=1e-2"};
  all.insert(all.end(), settings.begin(), settings.end());
  return {policy, settings, config::parse_config(kConfig, "run.toml", all, {policy, {}}), device()};
}

Comparison compared(std::vector<PlannedRun> runs, int seeds = 1, std::int64_t steps = 0) {
  PlannedComparison plan{.title = "test", .runs = std::move(runs), .reseeded = {}, .steps = steps};
  for (int i = 1; i < seeds; ++i) {
    for (std::size_t of = 0; of < plan.runs.size(); ++of) {
      plan.reseeded.push_back(plan.runs[of]);
      plan.reseeded.back().config.run.seed += static_cast<std::uint64_t>(i);
      plan.reseeded.back().of = of;
    }
  }
  return train_and_compare(plan);
}

TEST(Compare, EqualPoliciesAreTheSame) {
  const Comparison c = compared({planned("32-true"), planned("32"),
                                 planned("bf16-mixed", {"batch.micro_batch_size=4"}), planned("bf16-mixed")},
                                1, 6);
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

TEST(Compare, EveryPolicyTrainsWithTheSameSeeds) {
  const Comparison c = compared({planned("32-true"), planned("bf16-mixed")}, 3, 10);
  ASSERT_EQ(c.reseeded.size(), 4U);
  ASSERT_TRUE(c.runs[1].paired);
  const PairedGap& paired = *c.runs[1].paired;
  EXPECT_EQ(paired.seeds, (std::vector<std::uint64_t>{1, 2, 3}));
  double mean = 0;
  for (std::size_t k = 0; k < 3; ++k) {
    const ComparedRun& reference = k == 0 ? c.runs[0] : c.reseeded[2 * k - 2];
    const ComparedRun& run = k == 0 ? c.runs[1] : c.reseeded[2 * k - 1];
    EXPECT_EQ(reference.seed, k + 1);
    EXPECT_EQ(run.seed, k + 1);
    EXPECT_EQ(paired.gaps[k], run.steps.back().loss - reference.steps.back().loss);
    mean += paired.gaps[k] / 3;
  }
  EXPECT_DOUBLE_EQ(*c.runs[1].gap, mean);
  EXPECT_GT(paired.standard_error, 0);
  ASSERT_TRUE(c.noise);
  EXPECT_EQ(*c.noise, std::max(std::abs(*c.reseeded[0].loss_gap), std::abs(*c.reseeded[2].loss_gap)));
  EXPECT_LT(*paired.standard_error, *c.noise / 10) << "pairs differ by less than seeds";
}

TEST(Compare, OneSeedDoesNotTell) {
  const Comparison c = compared({planned("32-true"), planned("32-true", {"optimizer.lr=1e-4"})}, 1, 10);
  EXPECT_EQ(c.runs[1].outcome, Outcome::uncertain);
  EXPECT_EQ(c.runs[1].verdict.find("not enough runs to tell: worse by "), 0U) << c.runs[1].verdict;
  EXPECT_NE(c.verdict.find("With one seed, any difference may be chance."), std::string::npos) << c.verdict;
  EXPECT_EQ(nlohmann::json::parse(to_json(c))["runs"][1]["outcome"], "uncertain");
}

/// Gradients of this model are below 2^-10, half of the least number of e4m3. A loss scale lifts them.
TEST(Compare, CountsWhatSumsOverShardsLoseAndSend) {
  const std::vector<std::string> shards = {"batch.shards=4", "batch.micro_batch_size=1"};
  const Comparison c = compared(
      {planned("32-true", shards), planned("reduce=e4m3", shards),
       planned("reduce=e4m3 reduce_rounding=stochastic loss_scale=1024", shards), planned("reduce=e4m3")},
      1, 4);
  const ComparedRun &f32 = c.runs[0], &fp8 = c.runs[1], &scaled = c.runs[2], &whole = c.runs[3];
  EXPECT_FALSE(f32.reduce_flushed);
  EXPECT_FALSE(whole.reduce_flushed || whole.sent_bytes) << "one shard has no sums";
  EXPECT_GT(fp8.reduce_flushed, 0.2);
  EXPECT_EQ(fp8.reduce_saturated, 0);
  EXPECT_LT(scaled.reduce_flushed, *fp8.reduce_flushed / 4);
  EXPECT_EQ(*f32.sent_bytes, 4 * *fp8.sent_bytes);
  EXPECT_NE(to_text(c).find("sums over shards: "), std::string::npos) << to_text(c);
}

/// Updates are about as large as the learning rate, 2e-5. Numbers of bf16 near 0.02 are 2^-13 = 1.2e-4 apart.
TEST(Compare, RoundingToNearestLosesUpdatesThatStochasticRoundingKeeps) {
  const std::vector<std::string> slow = {"optimizer.lr=2e-5"};
  const Comparison c =
      compared({planned("32-true", slow), planned("bf16-true", slow),
                planned("bf16-true rounding=stochastic", slow), planned("bf16-true kahan=true", slow)},
               3);
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
  const Comparison c = compared({planned("32-true"), wrong}, 2, 2);
  EXPECT_EQ(c.reseeded.size(), 1U) << "it does not run with other seeds";
  EXPECT_EQ(c.runs[1].verdict.find("did not start: "), 0U) << c.runs[1].verdict;
  EXPECT_THROW(compared({wrong, planned("32-true")}, 1, 2), FileError);
}

TEST(Compare, ALossThatRisesDiverges) {
  const Comparison c = compared({planned("32-true"), planned("32-true", {"optimizer.lr=30"})});
  EXPECT_EQ(c.runs[1].outcome, Outcome::diverged) << c.runs[1].verdict;
  EXPECT_NE(c.runs[1].verdict.find("above its first value of"), std::string::npos) << c.runs[1].verdict;
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
  PlannedRun reference = planned("32-true"), lowered = planned("bf16-true reduce=e5m2", {"batch.shards=2"}),
             seed = reference;
  seed.config.run.seed += 1;
  PlannedRun lowered_seed = lowered;
  lowered_seed.config.run.seed += 1;
  const Comparison trained_now = compared({reference, lowered}, 2);
  const std::vector<std::filesystem::path> paths = {trained("a", reference), trained("b", lowered),
                                                    trained("c", seed), trained("d", lowered_seed)};
  const Comparison read = compare_directories(paths, *device());
  ASSERT_EQ(read.runs.size(), 2U);
  ASSERT_EQ(read.reseeded.size(), 2U) << "runs that differ only in their seed are one policy";
  EXPECT_EQ(read.reseeded[1].of, 1U);
  EXPECT_EQ(read.runs[1].paired->seeds, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_NEAR(*trained_now.runs[1].paired->standard_error, *read.runs[1].paired->standard_error, 2e-8);
  // metrics.jsonl has 9 significant digits, and losses are below 10.
  constexpr double kDigits = 0.5e-8;
  for (std::size_t i = 0; i < 2; ++i) {
    const ComparedRun &a = trained_now.runs[i], &b = read.runs[i];
    ASSERT_EQ(a.steps.size(), b.steps.size());
    for (std::size_t s = 0; s < a.steps.size(); ++s) EXPECT_NEAR(a.steps[s].loss, b.steps[s].loss, kDigits);
    EXPECT_NEAR(*a.validation_loss, *b.validation_loss, kDigits);
    EXPECT_NEAR(*a.updates_lost, *b.updates_lost, kDigits);
    EXPECT_EQ(a.reduce_flushed.has_value(), i == 1);
    EXPECT_EQ(b.reduce_flushed.has_value(), i == 1);
    EXPECT_NEAR(a.reduce_flushed.value_or(0), b.reduce_flushed.value_or(0), kDigits);
    EXPECT_EQ(a.reduce_saturated, b.reduce_saturated);
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
  EXPECT_EQ(read.no_distance, "");
  const std::string why = (folder / "a/start.safetensors").string() + " is missing, which a run with ";
  EXPECT_EQ(less.no_distance, why + "log.health_interval = 0 does not write");
  EXPECT_EQ(nlohmann::json::parse(to_json(less))["no_distance"], less.no_distance);
  EXPECT_NE(to_text(less).find("distance: none, because"), std::string::npos);
  EXPECT_NE(to_html(less).find("There is no distance, because"), std::string::npos);
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
