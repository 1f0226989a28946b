// Responses under a chat template that ends turns by text: RWKV's, whose answers end before "\n\nUser:".
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "train/rl/rl_run.h"

namespace mantissa::testing {
namespace {

using nlohmann::json;

constexpr const char* kTurnEnd = "\n\nUser:";
constexpr int kMostTokens = 30;

/// A tiny RWKV-7 model of bytes that has read conversations without an end token.
class TurnEnd : public Rl {
 protected:
  void SetUp() override {
    std::string talk, rows;
    for (int i = 0; i < 400; ++i) talk += "User: hi\n\nAssistant: yes\n\n";
    for (int i = 0; i < 8; ++i) rows += "{\"prompt\":\"hi\",\"answer\":\"yes\"}\n";
    write(folder / "talk.txt", talk);
    write(folder / "rows.jsonl", rows);
    write(folder / "talk.toml",
          "[run]\nsteps = 40\n[model]\nmodel_type = \"rwkv7\"\nhidden_size = 64\nintermediate_size = 128\n"
          "num_hidden_layers = 1\nhead_dim = 64\nvocab_size = 256\n[data]\nsource = \"talk.txt\"\n"
          "tokenizer = \"byte\"\nsequence_length = 64\nvalidation = 0.05\n[batch]\nglobal_batch_size = 4\n"
          "[optimizer]\nlr = 0.01\n");
    write(folder / "run.toml",
          "[run]\nsteps = 6\n[model]\npath = \"talk/model\"\n[data]\nsource = \"rows.jsonl\"\n"
          "tokenizer = \"byte\"\nvalidation = 0.25\n[optimizer]\nlr = 1e-4\n[checkpoint]\ninterval = 1\n"
          "keep = 9\n[rl]\nreward = \"exact\"\nprompts_per_step = 2\nsamples_per_prompt = 4\n"
          "max_new_tokens = " +
              std::to_string(kMostTokens) + "\ntemperature = 1.5\nepochs = 2\n");
    const Result r = mantissa(folder, "train talk.toml --out talk --precision 32-true --quiet");
    ASSERT_EQ(r.code, 0) << r.err;
  }
  std::vector<json> samples(const std::string& out) {
    std::vector<json> all;
    std::istringstream lines(read_all(folder / (out + "/samples.jsonl")));
    for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
    return all;
  }
};

TEST_F(TurnEnd, EndsAResponseAndIsNotScored) {
  ASSERT_EQ(run("r").code, 0) << read_all(folder / "err");
  const std::vector<json> all = samples("r");
  ASSERT_EQ(all.size(), 3U * 8U);
  int right = 0, truncated = 0;
  for (const json& s : all) {
    const auto response = s["response"].get<std::string>();
    EXPECT_FALSE(has(response, kTurnEnd)) << s;
    if (s["truncated"]) {
      ++truncated;
      EXPECT_EQ(s["tokens"], kMostTokens) << s;
    }
    if (response != " yes") continue;
    ++right;
    EXPECT_EQ(s["reward"], 1.0) << s;
    EXPECT_EQ(s["truncated"], false) << s;
    EXPECT_EQ(s["tokens"], response.size() + std::string(kTurnEnd).size()) << "with the text that ends it";
  }
  EXPECT_GT(right, std::ssize(all) / 2) << "the model has learnt the answer";
  EXPECT_GT(truncated, 0);
  const std::vector<json> lines = metrics("r");
  const auto of_eight =
      std::count_if(all.begin(), all.begin() + 8, [](const json& s) { return s["truncated"] == true; });
  EXPECT_EQ(lines[1]["truncated_share"], static_cast<double>(of_eight) / 8.0);
  for (const json& m : lines) {
    if (m.contains("rollout_difference")) {
      EXPECT_EQ(m["rollout_difference"], 0.0) << "the text that ends it is trained as it was sampled";
    }
  }
}

TEST_F(TurnEnd, EndsTheAnswersOfValidationAndOfEval) {
  ASSERT_EQ(run("r").code, 0) << read_all(folder / "err");
  const json start = metrics("r").front();
  EXPECT_EQ(start["step"], 0);
  EXPECT_EQ(start["validation_reward"], 1.0);
  EXPECT_EQ(start["validation_truncated_share"], 0.0);
  EXPECT_EQ(start["validation_response_length"], 11.0);
  const Result r = mantissa(folder, "eval r --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const json e = json::parse(r.out);
  ASSERT_EQ(e["responses"].size(), 2U);
  for (const json& response : e["responses"]) {
    EXPECT_EQ(response["response"], " yes");
    EXPECT_EQ(response["truncated"], false);
    EXPECT_EQ(response["tokens"], 11);
  }
}

TEST_F(TurnEnd, ChangesNoBitOfAResumedRun) {
  ASSERT_EQ(run("whole").code, 0) << read_all(folder / "err");
  std::filesystem::copy(folder / "whole", folder / "parts", std::filesystem::copy_options::recursive);
  // The state of step 3 lies within the second rollout, which has steps 3 and 4.
  for (const char* later : {"4", "5", "6"})
    std::filesystem::remove_all(folder / ("parts/state/step-0000000" + std::string(later)));
  ASSERT_EQ(run("parts", "--resume --threads 1 --set batch.micro_batch_size=1").code, 0)
      << read_all(folder / "err");
  EXPECT_FALSE(model("whole").empty());
  EXPECT_EQ(model("parts"), model("whole"));
  EXPECT_EQ(read_all(folder / "parts/samples.jsonl"), read_all(folder / "whole/samples.jsonl"));
  EXPECT_EQ(timeless(read_all(folder / "parts/metrics.jsonl")),
            timeless(read_all(folder / "whole/metrics.jsonl")));
}

}  // namespace
}  // namespace mantissa::testing
