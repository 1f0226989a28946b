// Runs under a loss scale: the effects and messages of skipped steps, and the end at the minimum scale.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/files/io/checkpoint.h"

namespace mantissa::api {
namespace {

using mantissa::testing::into;
using mantissa::testing::read_all;
using mantissa::testing::steps_of;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;

// 128 tokens a step: the head's gradient of the largest token is 2^40 / 128, far beyond f16.
constexpr const char* kTooLarge = "16-mixed loss_scale=dynamic:2^40";

TEST(Overflow, ASkippedStepChangesNothingButTheScale) {
  const TemporaryFolder folder;
  const auto skipping = [](int steps) {
    return Config::parse(tiny_config(steps, "16-mixed loss_scale=1099511627776"));
  };
  const Summary two = train(skipping(2), into(folder / "two"));
  const Summary five = train(skipping(5), into(folder / "five"));
  EXPECT_EQ(two.skipped, 2);
  EXPECT_EQ(five.skipped, 5);
  EXPECT_EQ(five.weights_xxh64, two.weights_xxh64);
  ASSERT_EQ(steps_of(folder / "five").size(), 5U);
  for (const nlohmann::json& step : steps_of(folder / "five")) {
    EXPECT_EQ(step["skipped"], true);
    EXPECT_EQ(step["loss_scale"], 1099511627776.0);
    EXPECT_TRUE(step["grad_norm"].is_null());
    EXPECT_EQ(step["lr"], steps_of(folder / "two")[0]["lr"]) << "the schedule counts applied updates";
  }
  EXPECT_EQ(steps_of(folder / "five").back()["tokens"], 5 * 128);
}

TEST(Overflow, TheScaleFallsUntilStepsAreApplied) {
  const TemporaryFolder folder;
  std::vector<Step> seen;
  std::vector<std::string> warnings;
  Events events;
  events.on_step = [&](const Step& s) { seen.push_back(s); };
  events.on_warning = [&](const Warning& w) { warnings.push_back(w.str()); };
  const Summary s = train(Config::parse(tiny_config(40, kTooLarge)), into(folder / "run"), events);
  ASSERT_EQ(seen.size(), 40U);
  EXPECT_GT(s.skipped, 10);
  EXPECT_LT(s.skipped, 40);
  EXPECT_EQ(seen[0].loss_scale, 0x1p40);
  EXPECT_EQ(seen[1].loss_scale, 0x1p40) << "the hysteresis of 2 forgives the first overflow";
  EXPECT_EQ(seen[2].loss_scale, 0x1p39);
  EXPECT_FALSE(seen.back().skipped);
  EXPECT_EQ(seen[0].overflow.find("lm_head log_prob backward "), 0U) << seen[0].overflow;
  EXPECT_NE(seen[0].overflow.find(" of kk)"), std::string::npos) << seen[0].overflow;
  EXPECT_EQ(seen.back().overflow, "");
  EXPECT_TRUE(warnings.empty()) << "a scale that began too high looks for its value: " << warnings[0];
}

TEST(Overflow, AtTheMinimumTheRunStopsWithTheCauseAndTheCures) {
  const TemporaryFolder folder;
  const std::string text =
      tiny_config(9, kTooLarge) + "[precision.loss_scale]\nmin_loss_scale = 549755813888\n";
  try {
    train(Config::parse(text), into(folder / "run"));
    FAIL() << "the run did not stop";
  } catch (const RunStopped& e) {
    const std::string message = e.what();
    for (const char* part : {"step 3: ", "minimum of 549755813888", "lm_head log_prob backward", "(f16)",
                             "data rows ", "--resume --rule '*: compute=f32' (tested)",
                             "--resume --precision bf16-mixed (tested)", "raise_error_at_min_scale=false"}) {
      EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
    }
  }
  // The cure works: the run continues from the state before the failed step to its end.
  TrainOptions again = into(folder / "run");
  again.resume = 0;
  const Summary s = train(Config::parse(text, {}, {"bf16-mixed", {}}), again);
  EXPECT_EQ(s.steps, 9);
  EXPECT_EQ(s.skipped, 2);
}

TEST(Overflow, APowerOfTwoChangesNoBit) {
  const TemporaryFolder folder;
  const std::string plain =
      train(Config::parse(tiny_config(4, "bf16-mixed")), into(folder / "a")).weights_xxh64;
  EXPECT_EQ(
      train(Config::parse(tiny_config(4, "bf16-mixed loss_scale=1024")), into(folder / "b")).weights_xxh64,
      plain);
}

TEST(Overflow, AValueBeyondAFormatIsReportedUnrounded) {
  const TemporaryFolder folder;
  const std::string text = tiny_config(2, "compute=f16");
  std::string large = text;
  large.replace(large.find("tie_word"), 0, "initializer_range = 3e4\n");
  try {
    train(Config::parse(large), into(folder / "run"));
    FAIL() << "the run did not stop";
  } catch (const RunStopped& e) {
    const std::string message = e.what();
    EXPECT_NE(message.find("65504 (f16)"), std::string::npos) << message;
    EXPECT_NE(message.find("--resume --rule '*: compute=f32' (tested)"), std::string::npos) << message;
  }
}

/// Returns the message of the run under `policy`, which must stop and must succeed with its cure.
std::string stopped(const std::string& policy, const std::vector<std::string>& set,
                    const std::filesystem::path& run, const std::string& rule) {
  std::string message;
  try {
    train(Config::parse(tiny_config(6, policy), set), into(run));
    ADD_FAILURE() << "the run did not stop";
  } catch (const RunStopped& e) {
    message = e.what();
  }
  EXPECT_NE(message.find("no weight was changed by this step"), std::string::npos) << message;
  EXPECT_NE(message.find("--resume --rule '" + rule), std::string::npos) << message;
  return message;
}

TEST(Overflow, AWeightThatItsFormatCannotHoldStopsTheRunBeforeItIsStored) {
  const TemporaryFolder folder;
  // Weights of about 60 move by up to lr per step.
  const std::vector<std::string> large = {"model.initializer_range=60", "optimizer.lr=400"};
  for (const char* policy : {"params=e4m3", "params=e4m3 rounding=stochastic loss_scale=1024"}) {
    const auto run = folder / (std::string("run") + std::to_string(std::string(policy).size()));
    const std::string message = stopped(policy, large, run, "*: params=f32' (tested)");
    EXPECT_NE(message.find("the update would take model."), std::string::npos) << message;
    EXPECT_NE(message.find("448 (e4m3) at element "), std::string::npos) << message;
    TrainOptions again = into(run);
    again.resume = 0;
    EXPECT_EQ(train(Config::parse(tiny_config(6, "32-true"), large), again).steps, 6);
  }
}

TEST(Overflow, AnOverflowOfLoweredIntermediateResultsIsReportedWithTheRuleThatRaisesThem) {
  const TemporaryFolder folder;
  const auto goes_on = [&](const char* run, const std::vector<std::string>& set, const std::string& policy,
                           const std::string& rule) {
    TrainOptions again = into(folder / run);
    again.resume = 0;
    EXPECT_EQ(train(Config::parse(tiny_config(6, policy), set, {std::nullopt, {rule}}), again).steps, 6);
  };
  // Squares of numbers around 50 exceed e4m3's 448.
  const std::vector<std::string> large = {"model.initializer_range=50"};
  const std::string norms = "32-true; *: op=statistics compute=e4m3";
  const std::string rule =
      R"({match = "model.layers.0.input_layernorm", op = "statistics", compute = "f32"})";
  const std::string made = stopped(norms, large, folder / "norms", rule + "'");
  EXPECT_NE(made.find("input_layernorm statistics forward nan (e4m3)"), std::string::npos) << made;
  goes_on("norms", large, norms, "*: op=statistics compute=f32");
  // The root of the second moment is 0 in e4m3, and so is eps.
  const std::string update = "32-true; *: op=update compute=e4m3";
  const std::string broken = stopped(update, {}, folder / "update", R"({match = "*")");
  EXPECT_NE(broken.find("the update in e4m3 would make model."), std::string::npos) << broken;
  EXPECT_NE(broken.find(R"(op = "update", compute = "f32"}')"), std::string::npos) << broken;
  goes_on("update", {}, update, "*: op=update compute=f32");
}

TEST(Overflow, WeightsAreNotDrawnBeyondTheirFormat) {
  const TemporaryFolder folder;
  try {
    const std::vector<std::string> large = {"model.initializer_range=200"};
    train(Config::parse(tiny_config(6, "params=e4m3"), large), into(folder / "run"));
    FAIL() << "the run began";
  } catch (const ConfigError& e) {
    EXPECT_EQ(std::string(e.what()),
              "model.initializer_range: model.embed_tokens.weight has initial values beyond the largest e4m3 "
              "(448); lower it, or keep this weight in f32. Fix: --rule 'model.embed_tokens: params=f32'");
  }
}

TEST(Overflow, AGradientThatItsFormatCannotHoldIsNamedWithTheRuleThatWidensIt) {
  const TemporaryFolder folder;
  const std::string message =
      stopped("grads=e4m3 loss_scale=dynamic:2^24", {"precision.loss_scale.min_loss_scale=16777216"},
              folder / "run", "*: grads=f32' (tested)");
  EXPECT_NE(message.find("lm_head log_prob backward "), std::string::npos) << message;
  EXPECT_NE(message.find("448 (e4m3)"), std::string::npos) << message;
  TrainOptions again = into(folder / "run");
  again.resume = 0;
  const Config cured =
      Config::parse(tiny_config(6, "grads=e4m3"), {}, {std::nullopt, {"lm_head: grads=f32"}});
  EXPECT_EQ(train(cured, again).steps, 6);
}

TEST(Resume, RejectsAnotherRunAndRecordsChanges) {
  const TemporaryFolder folder;
  train(Config::parse(tiny_config(3, "32-true")), into(folder / "run"));
  TrainOptions again = into(folder / "run");
  again.resume = 0;
  const auto resumed = [&](const std::vector<std::string>& set) {
    return train(Config::parse(tiny_config(3, "32-true"), set), again);
  };
  for (const char* set : {"run.seed=2", "data.people_max=4", "batch.global_batch_size=8",
                          "model.hidden_size=32", "model.rope_theta=500"}) {
    EXPECT_THROW(resumed({set}), ConfigError) << set;
  }
  const std::vector<std::string> changes = {"run.steps=6", "optimizer.lr=1e-3",
                                            "precision.policy=bf16-mixed"};
  EXPECT_EQ(resumed(changes).steps, 6);
  const nlohmann::json state = nlohmann::json::parse(read_all(folder / "run/state/step-00000006/state.json"));
  ASSERT_EQ(state["changes"].size(), 1U);
  const std::string change = state["changes"][0];
  EXPECT_EQ(change.find("step 3: run.steps 3 -> 6; optimizer.lr 0.01 -> 0.001; policy \""), 0U) << change;
}

/// All numbers of a model, or of the tensors of a state whose names begin with `kind`, in the order of the
/// weights' names.
std::vector<double> numbers_of(const std::filesystem::path& files, const std::string& kind = "") {
  const io::WeightFiles read(files);
  std::map<std::string, std::vector<double>> by_name;
  for (const io::TensorInfo& t : read.tensors()) {
    if (!t.name.starts_with(kind)) continue;
    std::vector<double>& values = by_name[t.name.substr(kind.size())];
    values.resize(static_cast<std::size_t>(t.count()));
    read.read_f64(t.name, values);
  }
  std::vector<double> all;
  for (const auto& [name, values] : by_name) all.insert(all.end(), values.begin(), values.end());
  return all;
}

TEST(Resume, ConvertsMastersAndMomentsWhoseFormatChanges) {
  const TemporaryFolder folder;
  const auto steps = [](int n, const char* policy) { return Config::parse(tiny_config(n, policy)); };
  train(steps(3, "64-true"), into(folder / "run"));
  std::filesystem::copy(folder / "run", folder / "same", std::filesystem::copy_options::recursive);
  TrainOptions again = into(folder / "run");
  again.resume = 0;
  const Summary s = train(steps(4, "32-true"), again);
  EXPECT_EQ(s.steps, 4);
  again.out = folder / "same";
  train(steps(4, "64-true"), again);
  const std::vector<double> got = numbers_of(folder / "run/model"), want = numbers_of(folder / "same/model");
  ASSERT_EQ(got.size(), want.size());
  ASSERT_GT(got.size(), 4096U);
  // The fourth step moves a weight by up to its rate, 1e-2; without the moments of three steps, or with
  // those of other weights, it would move most weights by another part of that.
  double distance = 0;
  for (std::size_t i = 0; i < got.size(); ++i) distance += std::abs(got[i] - want[i]);
  EXPECT_LT(distance / static_cast<double>(got.size()), 1e-5);
  // Without a step the masters are those of the state, rounded.
  train(steps(4, "bf16-true"), again);
  const Inspection model = inspect(folder / "same/model");
  EXPECT_EQ(nlohmann::json::parse(model.json)["casts"]["bf16"]["max_error"], 0.0);
}

TEST(Resume, RoundsF32StatesToTf32) {
  const TemporaryFolder folder;
  train(Config::parse(tiny_config(3, "32-true")), into(folder / "run"));
  TrainOptions again = into(folder / "run");
  again.resume = 0;
  train(Config::parse(tiny_config(3, "params=tf32 optimizer=tf32")), again);
  // Nothing was trained in between, so the model is that of the state, rounded.
  const Inspection model = inspect(folder / "run/model");
  EXPECT_EQ(nlohmann::json::parse(model.json)["casts"]["tf32"]["max_error"], 0.0);
}

TEST(Resume, WidensMastersOf8Bits) {
  const TemporaryFolder folder;
  const auto steps = [](int n, const char* policy) { return Config::parse(tiny_config(n, policy)); };
  train(steps(3, "params=e4m3 rounding=stochastic kahan=true"), into(folder / "run"));
  TrainOptions again = into(folder / "run");
  again.resume = 0;
  train(steps(3, "32-true"), again);  // no step: the model is that of the state
  const Inspection model = inspect(folder / "run/model");
  EXPECT_EQ(nlohmann::json::parse(model.json)["casts"]["e4m3"]["max_error"], 0.0);
  EXPECT_EQ(train(steps(6, "32-true"), again).steps, 6);
  EXPECT_EQ(train(steps(9, "params=e5m2 grads=e5m2 rounding=stochastic"), again).steps, 9);
}

TEST(Resume, BeginsACompensationAtZeroAndDropsItAgain) {
  const TemporaryFolder folder;
  const auto steps = [](int n, const char* policy) { return Config::parse(tiny_config(n, policy)); };
  train(steps(3, "bf16-true"), into(folder / "run"));
  TrainOptions again = into(folder / "run");
  again.resume = 0;
  // A step of no length loses nothing: what is lost after it was there before.
  const char* kahan = "bf16-true optimizer=bf16 kahan=true";
  const auto lost = [&](int step) {
    return numbers_of(folder / ("run/state/step-0000000" + std::to_string(step)) / "state.safetensors",
                      "compensation.");
  };
  train(Config::parse(tiny_config(4, kahan), {"optimizer.lr=1e-30"}), again);
  ASSERT_GT(lost(4).size(), 4096U);
  for (const double x : lost(4)) ASSERT_LT(std::abs(x), 1e-28);
  EXPECT_EQ(train(steps(6, kahan), again).steps, 6);
  EXPECT_TRUE(std::ranges::any_of(lost(6), [](double x) { return std::abs(x) > 1e-9; }));
  EXPECT_EQ(train(steps(9, "32-true"), again).steps, 9);
  EXPECT_TRUE(lost(9).empty());
}

TEST(Resume, StartsAtStepOneWhereTheRunHasNoStateYet) {
  const TemporaryFolder folder;
  TrainOptions resume = into(folder / "run");
  resume.resume = 0;
  const Config config = Config::parse(tiny_config(3, "32-true"));
  EXPECT_EQ(train(config, resume).weights_xxh64, train(config, into(folder / "other")).weights_xxh64);
}

}  // namespace
}  // namespace mantissa::api
