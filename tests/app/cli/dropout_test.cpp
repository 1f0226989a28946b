// Runs with dropout: no bit depends on how a step is computed, and only training steps drop.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "app/cli/adapter_run.h"

namespace mantissa {
namespace {

using testing::Adapter;
using testing::has;
using testing::mantissa;
using testing::read_all;
using testing::Result;

constexpr const char* kAll =
    " --set adapter.dropout=0.2 train.attention_dropout=0.3 train.residual_dropout=0.1";

class DropoutRun : public Adapter {
 protected:
  std::string validation_lines(const std::string& run) const {
    std::string all;
    std::istringstream lines(read_all(folder / run / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (has(line, "validation_loss")) all += line + "\n";
    return all;
  }
  double first_loss(const std::string& run) const {
    std::istringstream lines(read_all(folder / run / "metrics.jsonl"));
    std::string line;
    std::getline(lines, line);
    return nlohmann::json::parse(line)["loss"];
  }
};

TEST_F(DropoutRun, HasOneHashForThreadsSplitsRecomputationSetsPackingAndResumption) {
  const std::string common = std::string(" --overwrite --precision bf16-mixed") + kAll + " data.packing=";
  for (const std::string packing : {"false", "true"}) {
    ASSERT_EQ(train("r", "--threads 2" + common + packing).code, 0) << read_all(folder / "err");
    const std::string expected = weights("r");
    for (const std::string change :
         {"--threads 1 --set batch.micro_batch_size=1", "--set batch.micro_batch_size=4 --simd avx2",
          "--set batch.recompute=block batch.chunk_tokens=256"}) {
      ASSERT_EQ(train("s", change + common + packing).code, 0) << read_all(folder / "err");
      EXPECT_TRUE(weights("s") == expected) << packing << change;
    }
    ASSERT_EQ(
        train("s", "--resume=2 --precision bf16-mixed" + std::string(kAll) + " data.packing=" + packing).code,
        0)
        << read_all(folder / "err");
    EXPECT_TRUE(weights("s") == expected) << packing << " resumed";
    ASSERT_EQ(train("s", common + packing + " run.seed=2").code, 0);
    EXPECT_FALSE(weights("s") == expected) << "the seed is a key of the masks";
  }
}

/// Weights that do not move: the training loss has dropout, the loss on held-out rows has none.
TEST_F(DropoutRun, DropsInTrainingStepsAlone) {
  const std::string still = " --set optimizer.lr=1e-30 run.steps=1";
  ASSERT_EQ(train("without", still).code, 0) << read_all(folder / "err");
  const std::string held_out = validation_lines("without");
  ASSERT_FALSE(held_out.empty());
  for (const char* key : {"train.attention_dropout", "train.residual_dropout"}) {
    ASSERT_EQ(train("with", "--overwrite" + still + " " + key + "=0.5").code, 0) << read_all(folder / "err");
    EXPECT_NE(first_loss("with"), first_loss("without")) << key;
    EXPECT_EQ(validation_lines("with"), held_out) << key;
  }
}

TEST_F(DropoutRun, IsInThePlanAndRefusesDora) {
  const Result r = mantissa(folder, "explain run.toml --set adapter.dropout=0.2 train.attention_dropout=0.3");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(has(r.out, "dropout")) << r.out;
  const Result plan =
      mantissa(folder, "explain run.toml --json --set adapter.dropout=0.2 train.attention_dropout=0.3");
  for (const char* kernel : {"\"attention, drops 0.3 of the probabilities\"", "\"dropout, drops 0.2\"",
                             "\"attention.grad, drops 0.3 of the probabilities\""})
    EXPECT_TRUE(has(plan.out, kernel)) << kernel;
  EXPECT_TRUE(has(refusal("train run.toml --out d --set adapter.dora=true adapter.dropout=0.1"),
                  "adapter.dropout = 0.1: is not available with DoRA"));
  EXPECT_TRUE(has(refusal("train run.toml --out d --set train.attention_dropout=1"),
                  "train.attention_dropout = 1: must be"));
}

}  // namespace
}  // namespace mantissa
