// The configs of examples/ run, on a tiny model and tiny data.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "app/cli/run_program.h"

namespace mantissa::testing {
namespace {

using nlohmann::json;

struct Example {
  const char* name;
  const char* rows;      // the form of the data's rows
  const char* settings;  // a size for tests; the keys that the example is about stay
  const char* policy;    // the beginning of the policy's line in summary.json
  const char* result;    // what the run writes
};

void PrintTo(const Example& e, std::ostream* out) {
  *out << e.name;
}

class Examples : public ::testing::TestWithParam<Example> {
 protected:
  void SetUp() override {
    write(folder_ / "base.toml",
          "[run]\nsteps = 1\n[model]\nhidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = 2\n"
          "num_attention_heads = 4\nnum_key_value_heads = 2\nvocab_size = 256\n[data]\nsource = \"kk\"\n"
          "sequence_length = 32\n[batch]\nglobal_batch_size = 4\n");
    ASSERT_EQ(mantissa(folder_, "train base.toml --out b --quiet").code, 0) << read_all(folder_ / "err");
    std::string alpaca, orca, pairs;
    for (int i = 0; i < 40; ++i) {
      const std::string n = std::to_string(i);
      alpaca +=
          json{{"instruction", "Add one."}, {"input", n}, {"output", std::to_string(i + 1)}}.dump() + "\n";
      orca += json{{"question", "What is " + n + "?"}, {"response", "A number."}}.dump() + "\n";
      pairs += json{{"prompt", "Is " + n + " a number?"}, {"chosen", "Yes."}, {"rejected", "No, " + n + "."}}
                   .dump() +
               "\n";
    }
    write(folder_ / "pairs.jsonl", pairs);
    write(folder_ / "alpaca.jsonl", alpaca);
    write(folder_ / "orca.jsonl", orca);
    ASSERT_EQ(mantissa(folder_, "data kk --count 40 --people-max 2 --out puzzles.jsonl").code, 0);
  }
  const TemporaryFolder folder_;
};

TEST_P(Examples, Runs) {
  const Example& e = GetParam();
  const std::string verb = e.name == std::string("rl") ? "rl" : "train";
  std::string command =
      verb + " " MANTISSA_SOURCE_DIR "/examples/" + e.name + ".toml --out r --quiet " + e.settings;
  if (*e.rows != '\0') {
    command += std::string(
                   " --set model.path=b/model --set data.tokenizer=byte --set data.template=chatml "
                   "--set data.source=") +
               e.rows;
  }
  const Result r = mantissa(folder_, command);
  ASSERT_EQ(r.code, 0) << r.err;
  const json summary = json::parse(read_all(folder_ / "r/summary.json"));
  EXPECT_EQ(summary["steps"], 2);
  EXPECT_TRUE(summary["policy"].get<std::string>().starts_with(e.policy)) << summary["policy"];
  EXPECT_TRUE(std::filesystem::exists(folder_ / "r" / e.result));
}

/// tools/experiment.py runs these two configs one after the other.
TEST(ExampleFiles, TheExperimentsConfigsRun) {
  const TemporaryFolder folder;
  const std::string configs = MANTISSA_SOURCE_DIR "/tools/experiments/";
  std::string rows;
  for (int i = 0; i < 40; ++i)
    rows += json{{"prompt", "Is " + std::to_string(i) + " even?"}, {"completion", " Perhaps."}}.dump() + "\n";
  write(folder / "rows.jsonl", rows);
  const Result start = mantissa(
      folder, "train " + configs +
                  "kk-start.toml --out start-1 --quiet --set run.steps=2 --set schedule.warmup_steps=1 "
                  "--set model.vocab_size=256 --set model.hidden_size=48 "
                  "--set model.intermediate_size=32 --set model.num_hidden_layers=1 "
                  "--set data.source=rows.jsonl --set data.tokenizer=byte --set data.sequence_length=64");
  ASSERT_EQ(start.code, 0) << start.err;
  const Result rl =
      mantissa(folder, "rl " + configs +
                           "kk-rl.toml --out rl --quiet --set run.steps=2 --set schedule.warmup_steps=1 "
                           "--set rl.prompts_per_step=2 --set rl.samples_per_prompt=2 --set "
                           "rl.max_new_tokens=4 --set model.path=start-1/model --set data.tokenizer=byte "
                           "--set batch.micro_batch_size=4");
  ASSERT_EQ(rl.code, 0) << rl.err;
  EXPECT_EQ(json::parse(read_all(folder / "rl/summary.json"))["steps"], 2);
}

/// tools/experiment_reduce.py compares formats of sums under this config.
TEST(ExampleFiles, TheExperimentOfSumsRunsOnEveryNumberOfRanks) {
  const TemporaryFolder folder;
  for (const int ranks : {2, 8, 64}) {
    const Result r = mantissa(
        folder, fmt::format("compare {}/tools/experiments/reduce.toml --out {} --quiet --json --steps 1 "
                            "--seeds 1 --precision \"32-true,reduce=e4m3 "
                            "reduce_rounding=stochastic\" --set batch.shards={} --set "
                            "batch.micro_batch_size={}",
                            MANTISSA_SOURCE_DIR, ranks, ranks, 64 / ranks));
    ASSERT_EQ(r.code, 0) << r.err;
    const json runs = json::parse(read_all(folder / std::to_string(ranks) / "compare.json"))["runs"];
    ASSERT_EQ(runs.size(), 2U);
    EXPECT_EQ(runs[0]["sent_bytes"].get<std::int64_t>() / 4, runs[1]["sent_bytes"]) << ranks;
    EXPECT_GT(runs[1]["reduce_flushed"], 0) << ranks;
  }
}

TEST(ExampleFiles, TheDemosTokenizerIsThatOfTheCommandsInItsConfig) {
  const TemporaryFolder folder;
  ASSERT_EQ(mantissa(folder, "data kk --count 4000 --people-max 2 --out kk.jsonl").code, 0);
  std::istringstream rows(read_all(folder / "kk.jsonl"));
  std::string text;
  for (std::string row; std::getline(rows, row);) text += json::parse(row)["text"].get<std::string>() + "\n";
  write(folder / "kk.txt", text);
  ASSERT_EQ(mantissa(folder, "tokenizer train kk.txt --out tokenizer --vocab-size 512").code, 0);
  EXPECT_EQ(read_all(MANTISSA_SOURCE_DIR "/examples/demo-tokenizer.json"),
            read_all(folder / "tokenizer/tokenizer.json"));
}

INSTANTIATE_TEST_SUITE_P(
    All, Examples,
    ::testing::Values(
        Example{"demo", "", "--set run.steps=2 --set schedule.warmup_steps=1 --set data.sequence_length=128",
                "params=f32 compute=bf16", "model"},
        Example{"laboratory", "",
                "--set run.steps=2 --set schedule.warmup_steps=1 --set data.sequence_length=64",
                "params=f32 compute=bf16", "model"},
        Example{"logic-rl-sft", "puzzles.jsonl",
                "--set run.steps=2 --set schedule.warmup_steps=1 --set batch.global_batch_size=2",
                "params=f32 compute=bf16", "model"},
        Example{"kk-lora", "kk",
                "--set run.steps=2 --set schedule.warmup_steps=1 --set adapter.rank=2 "
                "--set data.sequence_length=900",
                "params=f32 compute=bf16", "adapter"},
        Example{"smollm2-lora", "alpaca.jsonl",
                "--set run.steps=2 --set schedule.warmup_steps=1 --set batch.global_batch_size=2",
                "params=f32 compute=bf16", "adapter"},
        Example{"litgpt-lora", "alpaca.jsonl",
                "--set run.steps=2 --set schedule.warmup_steps=1 --set adapter.rank=8",
                "params=bf16 compute=bf16", "adapter"},
        Example{"dpo", "pairs.jsonl",
                "--set run.steps=2 --set schedule.warmup_steps=1 --set batch.global_batch_size=2",
                "params=f32 compute=bf16", "model"},
        Example{"rl", "kk",
                "--set run.steps=2 --set schedule.warmup_steps=1 --set rl.prompts_per_step=2 --set "
                "rl.samples_per_prompt=2 --set rl.max_new_tokens=8 --set batch.micro_batch_size=2",
                "params=f32 compute=bf16", "samples.jsonl"},
        Example{"openrlhf-sft", "orca.jsonl",
                "--set run.steps=2 --set schedule.warmup_steps=1 --set batch.global_batch_size=4 --set "
                "batch.micro_batch_size=2",
                "params=f32 compute=bf16", "model"}),
    [](const ::testing::TestParamInfo<Example>& param) {
      std::string name = param.param.name;
      std::erase_if(name, [](char c) { return c == '-'; });
      return name;
    });

}  // namespace
}  // namespace mantissa::testing
