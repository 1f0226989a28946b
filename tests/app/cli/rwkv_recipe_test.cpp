// RWKV-LM's data, order, schedule and L2Wrap in whole runs, on a tiny model.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "app/cli/run_program.h"
#include "text/rows/binidx_files.h"

namespace mantissa::testing {
namespace {

using nlohmann::json;

/// A pair data.idx, data.bin of 4000 ids below 256 in documents that end with 0, and a config for it.
class RwkvRecipe : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(7);
    std::vector<std::vector<std::int64_t>> documents(1);
    for (int i = 0; i < 4000; ++i) {
      const bool ends = random() % 40 == 0 || i == 3999;
      documents.back().push_back(ends ? 0 : static_cast<std::int64_t>(random() % 255) + 1);
      if (ends && i != 3999) documents.emplace_back();
    }
    documents_ = documents.size();
    const text::Binidx pair(std::move(documents));
    write(folder_ / "data.idx", pair.idx());
    write(folder_ / "data.bin", pair.bin());
    write(folder_ / "run.toml",
          "[run]\nsteps = 6\n[model]\nhidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = 2\n"
          "num_attention_heads = 4\nnum_key_value_heads = 2\nvocab_size = 256\n"
          "[data]\nsource = \"data\"\nformat = \"binidx\"\norder = \"rwkv\"\nsequence_length = 32\n"
          "[train]\nl2wrap = 1e-2\n[batch]\nglobal_batch_size = 4\n"
          "[schedule]\nname = \"rwkv\"\nwarmup_steps = 2\n[checkpoint]\ninterval = 3\n");
  }
  std::string trained(const std::string& out, const std::string& options = "") {
    const Result r = mantissa(folder_, "train run.toml --quiet --out " + out + " " + options);
    EXPECT_EQ(r.code, 0) << r.err;
    return read_all(folder_ / out / "model/model.safetensors");
  }
  TemporaryFolder folder_;
  std::size_t documents_ = 0;
};

TEST_F(RwkvRecipe, GivesTheSameBytesForAnyMicroBatchThreadsAndResume) {
  const std::string whole = trained("a");
  ASSERT_FALSE(whole.empty());
  EXPECT_EQ(trained("b", "--set batch.micro_batch_size=1 --set run.threads=1"), whole);
  EXPECT_EQ(trained("a", "--resume=3"), whole);
  const std::string plain = trained("c", "--set train.l2wrap=0");
  EXPECT_NE(plain, whole);
  EXPECT_NE(trained("d", "--set data.order=auto --set data.validation=0 --set train.l2wrap=0"), plain);
}

TEST_F(RwkvRecipe, HasTheLearningRatesOfItsSchedule) {
  trained("a");
  std::istringstream lines(read_all(folder_ / "a/metrics.jsonl"));
  std::vector<double> rates;
  for (std::string line; std::getline(lines, line);) {
    const json row = json::parse(line);
    if (row.contains("lr")) rates.push_back(row["lr"].get<double>());
  }
  ASSERT_EQ(rates.size(), 6U);
  EXPECT_NEAR(rates[0], 3e-4 * 0.01, 1e-12);
  EXPECT_NEAR(rates[1], 3e-4 * 0.505, 1e-10);
  EXPECT_NEAR(rates[2], 3e-4, 1e-10);
  EXPECT_LT(rates[5], rates[3]);
}

/// As RWKV-LM goes on after rwkv-N.pth.
TEST_F(RwkvRecipe, GoesOnAfterTheStepsOfAnEarlierRun) {
  const auto rows_of = [&](const std::string& run) {
    std::istringstream lines(read_all(folder_ / run / "metrics.jsonl"));
    std::vector<json> rows;
    for (std::string line; std::getline(lines, line);) {
      json row = json::parse(line);
      if (row.contains("lr")) rows.push_back(std::move(row));
    }
    return rows;
  };
  trained("a");
  const Result converted = mantissa(folder_, "convert a/state/step-00000003 half");
  ASSERT_EQ(converted.code, 0) << converted.err;
  std::string config = read_all(folder_ / "run.toml");
  const std::size_t model = config.find("[model]"), data = config.find("[data]");
  config.replace(model, data - model, "[model]\npath = \"half\"\n");
  write(folder_ / "rest.toml", config);
  const Result rest =
      mantissa(folder_, "train rest.toml --quiet --out b --set run.steps=3 --set run.earlier_steps=3");
  ASSERT_EQ(rest.code, 0) << rest.err;
  const std::vector<json> whole = rows_of("a"), after = rows_of("b");
  ASSERT_EQ(after.size(), 3U);
  EXPECT_EQ(after[0]["loss"], whole[3]["loss"]) << "the same weights and rows";
  EXPECT_NE(after[1]["loss"], whole[4]["loss"]) << "the warm-up and the moments begin again";
  EXPECT_EQ(after[2]["lr"], whole[5]["lr"]) << "after the warm-up of two steps";
  EXPECT_NEAR(after[0]["lr"].get<double>(), 0.01 * whole[3]["lr"].get<double>(), 1e-9);
}

TEST_F(RwkvRecipe, IsDescribedBeforeTheRun) {
  const Result config = mantissa(folder_, "data inspect run.toml --json");
  ASSERT_EQ(config.code, 0) << config.err;
  const json described = json::parse(config.out);
  EXPECT_EQ(described["rows"], 113) << config.out;  // of 124 rows
  EXPECT_EQ(described["documents"], documents_) << "rows cross them without data.packing";
  EXPECT_EQ(described["notes"][0], "data.order = \"rwkv\": the magic prime for rows of 32 tokens is 113");
  for (const std::string name : {"data.idx", "data.bin", "data"}) {
    for (const std::string packing : {"", " --packing"}) {
      const Result files =
          mantissa(folder_, "data inspect " + name + " --json --sequence-length 64" + packing);
      ASSERT_EQ(files.code, 0) << files.err;
      const json d = json::parse(files.out);
      EXPECT_EQ(d["tokens"], 4000);
      EXPECT_EQ(d["documents"], documents_);
    }
  }
}

TEST_F(RwkvRecipe, NamesAPrimeThatDoesNotFitTheData) {
  const Result r = mantissa(folder_, "train run.toml --out a --set data.magic_prime=2926181");
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.err, "data.magic_prime = 2926181: expected a prime of the form 3n + 2")) << r.err;
  EXPECT_TRUE(has(r.err, "Fix: remove the key, which then has the value for this data.sequence_length, 113"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a/metrics.jsonl"));
  EXPECT_EQ(mantissa(folder_, "train run.toml --out a --set data.magic_prime=113 --quiet").code, 0);
}

/// With other sizes; the keys that the example is about stay.
TEST_F(RwkvRecipe, OfTheExampleRuns) {
  const Result r = mantissa(
      folder_, "train " MANTISSA_SOURCE_DIR
               "/examples/rwkv7.toml --out e --quiet --set run.steps=2 --set schedule.warmup_steps=1 "
               "--set data.source=data --set data.tokenizer=byte --set data.sequence_length=32 "
               "--set data.magic_prime=0 --set model.hidden_size=128 --set model.num_hidden_layers=2 "
               "--set model.vocab_size=256 --set batch.global_batch_size=4 --set batch.micro_batch_size=2");
  ASSERT_EQ(r.code, 0) << r.err;
  const json summary = json::parse(read_all(folder_ / "e/summary.json"));
  EXPECT_EQ(summary["steps"], 2);
  EXPECT_TRUE(summary["policy"].get<std::string>().starts_with("params=f32 compute=bf16"))
      << summary["policy"];
  EXPECT_TRUE(std::filesystem::exists(folder_ / "e/model/config.json"));
}

TEST_F(RwkvRecipe, IdsAreNotTextToShard) {
  const Result r = mantissa(folder_, "data shard data.bin --tokenizer byte --out shards");
  EXPECT_NE(r.code, 0);
  EXPECT_TRUE(has(r.err, "already holds token ids")) << r.err;
}

}  // namespace
}  // namespace mantissa::testing
