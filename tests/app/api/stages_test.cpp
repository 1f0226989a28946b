// Runs with stages of growing length: the state that they carry over, and stops at and between their ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using mantissa::testing::has;
using mantissa::testing::into;
using mantissa::testing::read_all;
using mantissa::testing::steps_of;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::timeless;

/// The keys of a tiny model without steps and lengths, in stages that `stages` lists.
std::string staged(const std::string& stages, const std::string& policy = "32-true",
                   const std::string& batch = "") {
  return "[run]\n" + stages +
         "[model]\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 2\nnum_attention_heads = 2\n"
         "vocab_size = 256\ntie_word_embeddings = true\nmax_position_embeddings = 64\nrope_theta = \"lwm\"\n"
         "[data]\nsource = \"kk\"\n[batch]\nglobal_batch_size = 4\nmicro_batch_size = 2\n" +
         batch +
         "[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_steps = 2\n[checkpoint]\ninterval = 1\nkeep = "
         "20\n[log]\n"
         "tensorboard = false\n[precision]\npolicy = \"" +
         policy + "\"\n";
}

/// 3 + 3 + 2 steps; the last stage is beyond 4096 tokens, where LWM's base of the angles changes.
constexpr const char* kThree =
    "[[run.stage]]\nsteps = 3\nsequence_length = 24\n"
    "[[run.stage]]\nsteps = 3\nsequence_length = 96\nglobal_batch_size = 2\nlr = 5e-3\n"
    "[[run.stage]]\nsteps = 2\nsequence_length = 4100\nglobal_batch_size = 1\nwarmup_steps = 1\n";

std::string refusal(const Config& config, const TrainOptions& options) {
  try {
    train(config, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

class StagesUnder : public ::testing::TestWithParam<const char*> {};
// A loss scale, histories of scales, compensations and stochastic rounding are carried over too; rules may
// begin within a stage.
INSTANTIATE_TEST_SUITE_P(Policies, StagesUnder,
                         ::testing::Values("bf16-mixed", "16-mixed",
                                           "fp8-hybrid; *mlp*: steps=2:5 compute=bf16",
                                           "bf16-true optimizer=bf16 rounding=stochastic"),
                         [](const auto& p) {
                           return std::regex_replace(std::string(p.param), std::regex("[^a-z0-9]"), "_");
                         });

TEST_P(StagesUnder, StoppedAndResumedAnywhereEndWithTheBytesOfARunThatWasNot) {
  mantissa::testing::expect_same_bytes_from(Config::parse(staged(kThree, GetParam())),
                                            {2, 3, 4, 6, 7});  // 3 and 6 are the ends of stages
}

TEST_P(StagesUnder, MicroBatchesThreadsAndRecomputationChangeNoBit) {
  const TemporaryFolder folder;
  const std::string policy = GetParam();
  if (has(policy, "16-true") || has(policy, "bf16-true"))
    GTEST_SKIP() << "gradients round once per micro-batch";
  const std::string reference =
      train(Config::parse(staged(kThree, policy)), into(folder / "a")).weights_xxh64;
  TrainOptions o = into(folder / "b");
  o.hardware.threads = 1;
  const std::string small =
      std::regex_replace(kThree, std::regex("length = (24|96)\n"), "$&micro_batch_size = 1\n");
  const Config other = Config::parse(staged(small, policy, "recompute = \"block\"\n"));
  EXPECT_EQ(train(other, o).weights_xxh64, reference);
}

TEST(Stages, CarryCountersAndSchedulesFromOneToTheNext) {
  const TemporaryFolder folder;
  const Summary s = train(Config::parse(staged(kThree)), into(folder / "run"));
  EXPECT_EQ(s.tokens, 3 * 4 * 24 + 3 * 2 * 96 + 2 * 4100);
  const std::vector<nlohmann::json> steps = steps_of(folder / "run");
  ASSERT_EQ(steps.size(), 8U);
  const double lr[] = {5e-3, 1e-2, 1e-3, 2.5e-3, 5e-3, 5e-4, 1e-2, 1e-3};  // each stage warms up and decays
  const int length[] = {24, 24, 24, 96, 96, 96, 4100, 4100};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_DOUBLE_EQ(steps[i]["lr"].get<double>(), lr[i]) << i;
    EXPECT_EQ(steps[i]["sequence_length"], length[i]) << i;
  }
  const auto state = nlohmann::json::parse(read_all(folder / "run/state/step-00000007/state.json"));
  EXPECT_EQ(state["data_position"], 3 * 4 + 3 * 2 + 1);
  EXPECT_EQ(state["stage_applied"], 6);
  // The model is that of the last stage, a state's that of its step.
  const auto model = nlohmann::json::parse(read_all(folder / "run/model/config.json"));
  EXPECT_EQ(model["rope_theta"], 1e6);
  EXPECT_EQ(model["max_position_embeddings"], 4100);
  const auto early = nlohmann::json::parse(read_all(folder / "run/state/step-00000003/state.json"));
  EXPECT_EQ(nlohmann::json::parse(early["model_config"].get<std::string>())["rope_theta"], 1e4);
}

TEST(Stages, OneIsTheRunWithoutIt) {
  const TemporaryFolder folder;
  const Summary one =
      train(Config::parse(staged("[[run.stage]]\nsteps = 4\nsequence_length = 32\n")), into(folder / "a"));
  const Summary none =
      train(Config::parse(staged("steps = 4\n"), {"data.sequence_length=32"}), into(folder / "b"));
  EXPECT_EQ(one.weights_xxh64, none.weights_xxh64);
}

TEST(Stages, ARunTakesFurtherStagesWhenItResumes) {
  const TemporaryFolder folder;
  // A file without held-out rows: the number of puzzles and what is held out depend on all stages.
  std::ofstream(folder / "text.txt") << std::string(20000, 'x') + std::string(20000, 'y');
  const auto over_file = [&](const std::string& stages) {
    return Config::parse(staged(stages),
                         {"data.source=" + (folder / "text.txt").string(), "data.validation=0"});
  };
  train(over_file("[[run.stage]]\nsteps = 3\nsequence_length = 24\n"), into(folder / "grown"));
  TrainOptions again = into(folder / "grown");
  again.resume = 0;
  const Summary grown = train(over_file(kThree), again);
  EXPECT_EQ(grown.weights_xxh64, train(over_file(kThree), into(folder / "whole")).weights_xxh64);
  const auto state = nlohmann::json::parse(read_all(folder / "grown/state/step-00000008/state.json"));
  EXPECT_TRUE(has(state["changes"].dump(), "stage 3 changed")) << state["changes"];
}

TEST(Stages, ThatHaveRunCannotChange) {
  const TemporaryFolder folder;
  train(Config::parse(staged(kThree)), into(folder / "run"));
  const auto resumed = [&](const char* from, const char* to, std::int64_t step) {
    TrainOptions again = into(folder / "run");
    again.resume = step;
    return refusal(Config::parse(staged(std::regex_replace(kThree, std::regex(from), to))), again);
  };
  EXPECT_TRUE(has(resumed("length = 96", "length = 95", 5), "--resume: stage 2 of the run has other steps"));
  EXPECT_TRUE(
      has(resumed("steps = 3\nsequence_length = 96", "steps = 4\nsequence_length = 96", 7), "stage 2"));
  EXPECT_TRUE(
      has(resumed("steps = 3\nsequence_length = 96", "steps = 1\nsequence_length = 96", 5), "stage 2"));
  EXPECT_EQ(resumed("length = 4100", "length = 4099", 5), "accepted");
}

TEST(Stages, AreExplainedWithTheMemoryAndTheTimeOfEach) {
  const Plan plan = explain(Config::parse(staged(kThree)));
  const auto json = nlohmann::json::parse(plan.json);
  ASSERT_EQ(json["stages"].size(), 3U);
  std::int64_t largest = 0;
  for (const auto& stage : json["stages"])
    largest = std::max(largest, stage["memory"]["peak"].get<std::int64_t>());
  // The process may have grown between the forecasts.
  EXPECT_NEAR(json["memory"]["peak"].get<double>(), static_cast<double>(largest), 2e6);
  EXPECT_EQ(json["stages"][2]["first_step"], 7);
  EXPECT_EQ(json["stages"][2]["rope_theta"], 1e6);
  EXPECT_GT(json["stages"][2]["seconds_per_step"], json["stages"][0]["seconds_per_step"]);
  EXPECT_TRUE(has(plan.text, "stages ")) << plan.text;
}

TEST(Stages, OfTheExampleRunAtSmallSizes) {
  const TemporaryFolder folder;
  const std::filesystem::path example =
      std::filesystem::path(MANTISSA_SOURCE_DIR) / "examples/lwm-stages.toml";
  const auto plan = nlohmann::json::parse(explain(Config::load(example)).json);
  ASSERT_EQ(plan["stages"].size(), 3U);
  const double theta[] = {1e4, 1e6, 1e7};
  for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(plan["stages"][s]["rope_theta"], theta[s]);
  EXPECT_LT(plan["memory"]["peak"].get<double>(), 24e9);
  const Config small = Config::load(example, {"run.stage=[{steps = 2, sequence_length = 64, "
                                              "global_batch_size = 4}, {steps = 2, sequence_length = 256},"
                                              " {steps = 1, sequence_length = 1024}]"});
  EXPECT_EQ(train(small, into(folder / "run")).tokens, 2 * 4 * 64 + 2 * 256 + 1024);
}

TEST(Stages, AreRefusedForRowsInMemory) {
  const TemporaryFolder folder;
  TrainOptions o = into(folder / "run");
  o.data.rows = {{.ids = {1, 2, 3}}};
  EXPECT_TRUE(has(refusal(Config::parse(staged(kThree)), o), "run.stage: rows in memory"));
}

TEST(LongContext, ActivationsGrowWithTheTokensAndNotWithTheirSquare) {
  const auto bytes = [](int tokens, const char* what) {
    const Config config = Config::parse(staged("steps = 2\n", "32-true", "recompute = \"block\"\n"),
                                        {"data.sequence_length=" + std::to_string(tokens),
                                         "batch.global_batch_size=1", "batch.micro_batch_size=1"});
    return nlohmann::json::parse(explain(config).json)["memory"][what].get<double>();
  };
  for (const char* what : {"activations", "work", "tables"}) {
    // So long that the parts of scratch that depend on tiles and threads alone are small.
    const double growth = bytes(262144, what) / bytes(65536, what);
    EXPECT_LT(growth, 4.1) << what;
    EXPECT_GT(growth, 3) << what;
  }
}

}  // namespace
}  // namespace mantissa::api
