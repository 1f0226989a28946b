// Runs whose batch is in shards: the sums that ranks would communicate, in the policy's `reduce` format.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using mantissa::testing::into;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;

std::string config_of(int shards, const std::string& policy, int micro = 1, int steps = 3) {
  std::string text = tiny_config(steps, policy, micro);
  const std::string at = "[batch]\nglobal_batch_size = 4\n";
  return text.replace(text.find(at), at.size(), at + "shards = " + std::to_string(shards) + "\n");
}

std::string weights_of(const std::string& config, int threads = 2) {
  const TemporaryFolder folder;
  TrainOptions options = into(folder / "run");
  options.hardware.threads = threads;
  return train(Config::parse(config), options).weights_xxh64;
}

TEST(Shards, BitsDoNotDependOnThreadsOrTheMicroBatch) {
  const std::string once = weights_of(config_of(2, "bf16-mixed reduce=bf16", 2));
  EXPECT_EQ(weights_of(config_of(2, "bf16-mixed reduce=bf16", 1)), once);
  EXPECT_EQ(weights_of(config_of(2, "bf16-mixed reduce=bf16", 1), 1), once);
}

TEST(Shards, TheFormatOfTheirSumsChangesBitsOnlyWithSeveralShards) {
  EXPECT_NE(weights_of(config_of(4, "reduce=bf16")), weights_of(config_of(4, "32-true")));
  EXPECT_NE(weights_of(config_of(4, "reduce=bf16")), weights_of(config_of(2, "reduce=bf16")));
  EXPECT_EQ(weights_of(config_of(1, "reduce=bf16")), weights_of(config_of(1, "32-true")));
  EXPECT_NE(weights_of(config_of(4, "64-true")), weights_of(config_of(4, "32-true")));
}

TEST(Shards, StochasticRoundingOfTheirSumsHasItsOwnBitsForEverySeed) {
  const std::string policy = "reduce=bf16 reduce_rounding=stochastic";
  const std::string once = weights_of(config_of(4, policy, 1));
  EXPECT_NE(once, weights_of(config_of(4, "reduce=bf16", 1)));
  EXPECT_EQ(weights_of(config_of(2, policy, 2), 1), weights_of(config_of(2, policy, 1), 2));
}

TEST(Shards, AStochasticSumContinuesWithTheSameBits) {
  const TemporaryFolder folder;
  const std::string policy = "reduce=bf16 reduce_rounding=stochastic";
  const std::string whole = weights_of(config_of(4, policy, 1, 6));
  train(Config::parse(config_of(4, policy, 1, 6)), into(folder / "run"));
  TrainOptions options = into(folder / "run");
  options.resume = 3;
  EXPECT_EQ(train(Config::parse(config_of(4, policy, 1, 6)), options).weights_xxh64, whole);
}

TEST(Shards, ThePlanShowsThemAndTheirMemory) {
  const Plan one = explain(Config::parse(config_of(1, "reduce=bf16")));
  const Plan four = explain(Config::parse(config_of(4, "reduce=bf16")));
  EXPECT_EQ(one.text.find("\nshards "), std::string::npos) << one.text;
  ASSERT_EQ(one.notes.size(), 1U);
  EXPECT_EQ(one.notes[0].find("reduce=bf16 has no effect: the batch is one shard; "), 0U) << one.notes[0];
  EXPECT_TRUE(four.notes.empty());
  EXPECT_NE(four.text.find("shards  4 of 1 sequence; gradients are added by a tree in bf16\n"),
            std::string::npos)
      << four.text;
  const Plan random = explain(Config::parse(config_of(4, "reduce=bf16 reduce_rounding=stochastic")));
  EXPECT_NE(
      random.text.find("added by a tree in bf16, rounded stochastically, keyed by seed, step, name, shards "
                       "and element\n"),
      std::string::npos)
      << random.text;
  EXPECT_EQ(nlohmann::json::parse(random.json)["reduce_rounding"], "stochastic");
  const Plan idle = explain(Config::parse(config_of(1, "reduce=bf16 reduce_rounding=stochastic")));
  ASSERT_EQ(idle.notes.size(), 1U);
  EXPECT_EQ(idle.notes[0].find("reduce=bf16 with reduce_rounding has no effect: "), 0U) << idle.notes[0];
  // At most two sums wait, with 2 bytes per parameter; those of a norm with 16 parameters use a line of 64
  // bytes.
  const std::size_t matrices = 256 * 16 + 4 * 16 * 16 + 3 * 16 * 24, norms = 3;
  EXPECT_EQ(nlohmann::json::parse(four.json)["memory"]["shard_sums"], 2 * (2 * matrices + 64 * norms));
  EXPECT_EQ(nlohmann::json::parse(one.json)["memory"]["shard_sums"], 0);
  // Of four ranks each sends three quarters of the sums twice.
  const std::size_t parameters = matrices + 16 * norms;
  EXPECT_EQ(nlohmann::json::parse(four.json)["reduce_sent_bytes"], 2 * 2 * parameters * 3 / 4);
  EXPECT_EQ(nlohmann::json::parse(one.json)["reduce_sent_bytes"], 0);
  EXPECT_NE(four.text.find("wire    each of 4 ranks would send "), std::string::npos) << four.text;
}

TEST(Shards, AnOverflowOfTheirSumIsNamedWithItsCure) {
  const TemporaryFolder folder;
  // Gradients in f32 under this scale are finite, but beyond f16.
  const std::string text = config_of(4, "reduce=f16 loss_scale=dynamic:2^40") +
                           "[precision.loss_scale]\nmin_loss_scale = 549755813888\n";
  try {
    train(Config::parse(text), into(folder / "run"));
    FAIL() << "the run should stop";
  } catch (const RunStopped& e) {
    EXPECT_NE(std::string(e.what()).find("a sum of the gradients of 4 shards in f16"), std::string::npos)
        << e.what();
    EXPECT_NE(std::string(e.what()).find("--resume --set precision.reduce=f32 (tested), or "),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace mantissa::api
