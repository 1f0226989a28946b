// Reinforcement learning by the program: rollouts with the bits of training, resumption, and rewards.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "train/rl/rl_run.h"

namespace mantissa {
namespace {

using testing::has;
using testing::mantissa;
using testing::read_all;
using testing::Result;
using testing::Rl;
using testing::timeless;
using testing::write;

/// Weight decay moves the weights, so the divergence from the reference has gradients of 1e-12, whose updates
/// f32 rounds away.
TEST_F(Rl, EqualRewardsAreNotCalledLostUpdates) {
  put("", "[log]\nhealth_interval = 1\n", 3);
  write(folder / "letters.sh", "#!/bin/sh\nwhile read -r line; do\n  echo '{\"reward\":1}'\ndone\n");
  const std::string command = "rl run.toml --allow-programs --overwrite --set optimizer.lr=3e-4 --out r";
  const Result equal = mantissa(folder, command);
  ASSERT_EQ(equal.code, 0) << equal.err;
  EXPECT_TRUE(has(equal.out, "every gradient is 0, so no weight changes")) << equal.out;
  EXPECT_FALSE(has(equal.out + equal.err, "were lost")) << equal.out << equal.err;
  EXPECT_FALSE(has(equal.out + equal.err, "optimizer.lr=")) << equal.out << equal.err;
  const Result audit =
      mantissa(folder, "audit run.toml --allow-programs --set optimizer.lr=3e-4 --out audit");
  ASSERT_EQ(audit.code, 0) << audit.err;
  EXPECT_TRUE(has(audit.out, "are not informative: all responses have the same reward")) << audit.out;
  EXPECT_FALSE(has(audit.out, "no problem")) << audit.out;
}

TEST_F(Rl, SampledLogProbabilitiesAreThoseOfTrainingUnderEveryPolicy) {
  for (const char* policy : {"32-true", "bf16-mixed", "16-mixed", "bf16-true", "fp8-hybrid", "64-true",
                             "bf16-mixed compute=nvfp4 scaling=delayed", "bf16-matmul-x3", "tf32",
                             "bf16-mixed; *: rounding=stochastic"}) {
    SCOPED_TRACE(policy);
    put("", "", 3);
    const Result r = run("r", std::string("--overwrite --precision '") + policy + "'");
    ASSERT_EQ(r.code, 0) << r.err;
    const std::vector<nlohmann::json> all = metrics("r");
    ASSERT_EQ(all.size(), 3U);
    for (const nlohmann::json& m : all) {
      EXPECT_EQ(m["rollout_difference"], 0.0);
      EXPECT_EQ(m["ratio_min"], 1.0);
      EXPECT_EQ(m["ratio_max"], 1.0);
    }
    EXPECT_EQ(all[0]["kl"], 0.0) << "the reference has the starting weights";
    EXPECT_GT(all[2]["kl"], 0.0);
  }
}

TEST_F(Rl, ScalesOfTheTokensOfAPassAreNoted) {
  put("", "", 1);
  const std::string note = "so the ratio of the first step on a rollout is near 1, not 1";
  const auto told = [&](const std::string& policy) {
    const Result r = run("r", "--overwrite --dry-run --precision '" + policy + "'");
    EXPECT_EQ(r.code, 0) << r.err;
    return has(r.out + r.err, note) || has(std::regex_replace(r.out + r.err, std::regex("\n *"), " "), note);
  };
  EXPECT_TRUE(told("bf16-mixed compute=nvfp4"));
  EXPECT_FALSE(told("bf16-mixed compute=nvfp4 scaling=delayed"));
  EXPECT_FALSE(told("bf16-mixed"));
  const Result r = run("r", "--overwrite --precision 'bf16-mixed compute=nvfp4'");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_GT(metrics("r").at(0)["rollout_difference"], 0.0);
}

TEST_F(Rl, TheTableAndTensorBoardHaveTheRollouts) {
  put("kl_in = \"reward\"\nkl_coef = 0.1\nrollout_precision = \"bf16-mixed\"\n", "", 3);
  const Result r = mantissa(folder, "rl run.toml --allow-programs --out r");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(
      has(r.out, "\n  step   reward  acc length       kl entropy mismatch   gnorm    tok/s     left\n"))
      << r.out;
  EXPECT_TRUE(std::regex_search(
      r.out, std::regex("\nreward      [0-9.]+ at the first step, [0-9.]+ at the last rollout\n")))
      << r.out;
  EXPECT_FALSE(has(r.out, "\nloss ")) << r.out;
  std::string events;
  for (const auto& file : std::filesystem::directory_iterator(folder / "r")) {
    if (has(file.path().filename().string(), "tfevents")) events += read_all(file);
  }
  const auto has_tag = [&](const std::string& name) {
    return has(events, std::string("\n") + static_cast<char>(name.size()) + name);  // field 1, its length
  };
  const std::vector<nlohmann::json> all = metrics("r");
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0]["kl"], 0.0) << "the reference has the starting weights";
  EXPECT_GT(all[2]["kl"], 0.0);
  for (const auto& [name, value] : all[0].items()) {
    if (name == "step" || name == "tokens" || name == "skipped" || name == "seconds" ||
        name == "peak_share" || value.is_null())
      continue;
    const bool common = name == "loss" || name == "grad_norm" || name == "lr" || name == "loss_scale" ||
                        name == "tokens_per_second" || name == "fallback_share";
    EXPECT_TRUE(has_tag(common ? name : "rl/" + name)) << name;
    EXPECT_EQ(has_tag(name), common) << name << ": TensorBoard groups the others";
  }
  for (const char* name : {"reward", "response_length", "kl", "entropy", "rollout_difference"})
    EXPECT_TRUE(all[0].contains(name)) << name;
}

TEST_F(Rl, RewardsRise) {
  put("", "", 40);
  ASSERT_EQ(run("r").code, 0) << read_all(folder / "err");
  const std::vector<nlohmann::json> all = metrics("r");
  const auto mean = [&](std::size_t first) {
    double sum = 0;
    for (std::size_t i = first; i < first + 5; ++i) sum += all[i]["reward"].get<double>();
    return sum / 5;
  };
  // Letters a to m are 13 of 256 bytes, so twelve random bytes have 0.6 of them.
  EXPECT_LT(mean(0), 1.5);
  EXPECT_GT(mean(35), 4);
}

TEST_F(Rl, ResumesWithTheSameBytesWithinARolloutToo) {
  put("epochs = 2\nminibatches = 3\n", "", 14);
  for (const char* algorithm : {"grpo", "ppo"}) {
    const std::string option = std::string(" --set rl.algorithm=") + algorithm;
    ASSERT_EQ(run("whole", "--overwrite" + option).code, 0) << read_all(folder / "err");
    std::filesystem::remove_all(folder / "parts");
    std::filesystem::copy(folder / "whole", folder / "parts", std::filesystem::copy_options::recursive);
    // The state of step 8 lies within the second rollout, which has steps 7 to 12.
    for (const char* later : {"10", "12", "14"})
      std::filesystem::remove_all(folder / ("parts/state/step-000000" + std::string(later)));
    ASSERT_EQ(run("parts", "--resume --threads 1 --simd avx2" + option).code, 0) << read_all(folder / "err");
    EXPECT_FALSE(model("whole").empty());
    EXPECT_EQ(model("parts"), model("whole")) << algorithm;
    EXPECT_EQ(read_all(folder / "parts/samples.jsonl"), read_all(folder / "whole/samples.jsonl"));
    EXPECT_EQ(timeless(read_all(folder / "parts/metrics.jsonl")),
              timeless(read_all(folder / "whole/metrics.jsonl")));
  }
}

TEST_F(Rl, MoreStepsContinueARunOnPuzzlesAndTheNoteNamesWhatGrew) {
  const std::string held_out = " --set data.validation=0.5";
  ASSERT_EQ(run("r", "--set run.steps=2" + held_out).code, 0) << read_all(folder / "err");
  const auto length = [&] {
    std::smatch found;
    const std::string text = read_all(folder / "r/config.toml");
    EXPECT_TRUE(std::regex_search(text, found, std::regex("sequence_length = ([0-9]+)")));
    return found[1].str();
  };
  const std::string before = length();
  for (const auto& [steps, note] :
       {std::pair("12",
                  "held-out prompts 3 -> 18 (the first 3 are the same; compare validations of 3 and of "
                  "18 separately)"),
        std::pair("14", "step 12: run.steps 12 -> 14; held-out prompts 18 -> 21 (the first 18 are")}) {
    const Result r =
        mantissa(folder, std::string("rl run.toml --allow-programs --out r --resume --set run.steps=") +
                             steps + held_out);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_TRUE(has(r.out + r.err, note)) << r.out << r.err;
  }
  EXPECT_NE(length(), before) << "the longest of more puzzles is longer";
  EXPECT_EQ(metrics("r").back()["step"], 14);
  EXPECT_TRUE(has(read_all(folder / "r/state/step-00000014/state.json"),
                  "data.sequence_length " + before + " -> " + length()));
  // A length that is given is room too, unless long prompts are skipped: then it chooses the prompts.
  const std::string longer =
      "rl run.toml --allow-programs --quiet --out r --resume --set run.steps=15 --set data.sequence_length=900";
  EXPECT_TRUE(has(refusal(longer + " --set data.truncate=skip" + held_out), "--resume: data."));
  EXPECT_EQ(mantissa(folder, longer + held_out).code, 0) << read_all(folder / "err");
}

TEST_F(Rl, MicroBatchesChangeNoBit) {
  put("kl_in = \"reward\"\nalgorithm = \"reinforce++\"\n");
  ASSERT_EQ(run("a", "--precision bf16-mixed").code, 0) << read_all(folder / "err");
  ASSERT_EQ(run("b", "--precision bf16-mixed --set batch.micro_batch_size=1 --threads 1").code, 0);
  EXPECT_FALSE(model("a").empty());
  EXPECT_EQ(model("a"), model("b"));
  EXPECT_EQ(read_all(folder / "a/samples.jsonl"), read_all(folder / "b/samples.jsonl"));
}

TEST_F(Rl, SamplesAreInSamplesJsonl) {
  ASSERT_EQ(run("r").code, 0);
  std::istringstream lines(read_all(folder / "r/samples.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto sample = nlohmann::json::parse(line);
    EXPECT_EQ(sample["step"], 1 + count / 12);
    EXPECT_TRUE(sample["prompt"].get<std::string>().ends_with("Assistant:")) << line;
    EXPECT_EQ(sample["people"], 2);
    EXPECT_EQ(sample["reward"], sample["parts"]["letters"]);
    if (sample["truncated"]) {
      EXPECT_EQ(sample["tokens"], 12) << line;
    }
  }
  EXPECT_EQ(count, 6 * 12);
}

TEST_F(Rl, AnotherRolloutPrecisionShowsTheMismatch) {
  put("rollout_precision = \"fp8-hybrid scaling=current\"\n");
  ASSERT_EQ(run("plain").code, 0) << read_all(folder / "err");
  ASSERT_EQ(run("corrected", "--set rl.importance_cap=2").code, 0) << read_all(folder / "err");
  for (const nlohmann::json& m : metrics("plain")) {
    EXPECT_GT(m["rollout_difference"], 1e-4);
    EXPECT_GT(m["rollout_kl"], 0.0);
    EXPECT_LT(m["rollout_ratio_min"], 1.0);
    EXPECT_GT(m["rollout_ratio_max"], 1.0);
    EXPECT_LT(m["effective_sample_share"], 1.0);
    EXPECT_EQ(m["ratio_max"], 1.0) << "the old policy is that of training";
  }
  EXPECT_LE(metrics("corrected")[0]["importance_max"], 2.0);
  EXPECT_NE(model("plain"), model("corrected"));
}

TEST_F(Rl, AnAdaptersReferenceIsItsBase) {
  ASSERT_EQ(run("base").code, 0);
  write(folder / "lora.toml",
        std::regex_replace(read_all(folder / "run.toml"), std::regex(R"(\[model\][^\[]*)"),
                           "[model]\npath = \"base/model\"\n[adapter]\nkind = \"lora\"\nrank = 2\n"));
  const Result r = mantissa(folder, "rl lora.toml --allow-programs --quiet --out r --precision bf16-mixed");
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<nlohmann::json> all = metrics("r");
  EXPECT_EQ(all[0]["kl"], 0.0);
  EXPECT_GT(all[5]["kl"], 0.0);
  for (const nlohmann::json& m : all) EXPECT_EQ(m["rollout_difference"], 0.0);
  EXPECT_TRUE(std::filesystem::exists(folder / "r/adapter/adapter_model.safetensors"));
}

TEST_F(Rl, ValidationAnswersHeldOutPrompts) {
  put("", "", 2);
  ASSERT_EQ(run("r", "--set rl.reward=kk --set data.validation=0.1").code, 0) << read_all(folder / "err");
  const std::vector<nlohmann::json> all = metrics("r");
  ASSERT_EQ(all.size(), 4U);
  for (const std::size_t line : {0, 3}) {
    EXPECT_EQ(all[line]["step"], line == 0 ? 0 : 2);
    EXPECT_TRUE(all[line]["validation_loss"].is_null());
    EXPECT_GE(all[line]["validation_reward"], -3.0);
    EXPECT_TRUE(all[line].contains("validation_accuracy_2_people"));
    EXPECT_EQ(all[line]["validation_prompts"], 1);
  }
  EXPECT_EQ(all[1]["prompts"], 3);
}

TEST_F(Rl, ValidationBeforeTheFirstStepIsThatOfTheStart) {
  const std::string held_out = " --set data.validation=0.5 --set run.seed=5";
  ASSERT_EQ(run("base", held_out).code, 0) << read_all(folder / "err");
  write(folder / "run.toml",
        std::regex_replace(read_all(folder / "run.toml"), std::regex(R"(\[model\][^\[]*)"),
                           "[model]\npath = \"base/model\"\n"));
  ASSERT_EQ(run("whole", held_out).code, 0) << read_all(folder / "err");
  nlohmann::json start = metrics("whole").front(), end = metrics("base").back();
  EXPECT_EQ(start["step"], 0);
  start.erase("step"), end.erase("step");
  EXPECT_EQ(start, end) << "the same model answers the same prompts";
  // A resumed run does not measure it again, and one without a state starts over.
  for (const bool state : {true, false}) {
    std::filesystem::remove_all(folder / "parts");
    std::filesystem::copy(folder / "whole", folder / "parts", std::filesystem::copy_options::recursive);
    for (const char* later : {"4", "6", state ? "" : "2"})
      std::filesystem::remove_all(folder / ("parts/state/step-0000000" + std::string(later)));
    if (!state) std::filesystem::remove_all(folder / "parts/model");  // a run writes it last
    const Result r = mantissa(folder, "rl run.toml --allow-programs --out parts --resume" + held_out);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(has(r.out + r.err, " 0 held-out:"), !state) << r.out << r.err;
    EXPECT_EQ(model("parts"), model("whole"));
    EXPECT_EQ(timeless(read_all(folder / "parts/metrics.jsonl")),
              timeless(read_all(folder / "whole/metrics.jsonl")));
  }
}

TEST_F(Rl, EvalOfARunAnswersItsHeldOutPrompts) {
  put("", "", 2);
  const std::string three = " --set data.people_max=3";
  ASSERT_EQ(run("r", "--set rl.reward=kk --set data.validation=0.9" + three).code, 0)
      << read_all(folder / "err");
  const nlohmann::json last = metrics("r").back();
  Result r = mantissa(folder, "eval r --allow-programs --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const nlohmann::json e = nlohmann::json::parse(r.out);
  EXPECT_EQ(e["prompts"], 5);
  EXPECT_EQ(e["responses"].size(), 5U);
  EXPECT_NEAR(e["reward"].get<double>(), last["validation_reward"].get<double>(), 1e-8);
  EXPECT_EQ(e["accuracy"], last["validation_accuracy"]);
  ASSERT_EQ(e["by_people"].size(), 2U);
  EXPECT_EQ(e["by_people"][0]["people"], 2);
  r = mantissa(folder, "eval r --allow-programs --puzzles 3");
  EXPECT_TRUE(has(r.out, "mean of 3 held-out prompts")) << r.out;
  EXPECT_TRUE(has(r.out, "2 people")) << r.out;
  r = mantissa(folder, "eval r --allow-programs --precision 32-true,bf16-mixed");
  EXPECT_TRUE(has(r.out, "reward") && has(r.out, "bf16-mixed")) << r.out << r.err;
  // A program does not say which responses are right.
  ASSERT_EQ(run("p", "--set data.validation=0.5" + three).code, 0) << read_all(folder / "err");
  r = mantissa(folder, "eval p --allow-programs --json");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_FALSE(nlohmann::json::parse(r.out).contains("accuracy"));
  EXPECT_NEAR(nlohmann::json::parse(r.out)["reward"].get<double>(),
              metrics("p").back()["validation_reward"].get<double>(), 1e-8);
  ASSERT_EQ(run("none").code, 0);
  EXPECT_TRUE(has(refusal("eval none"), "no prompts are held out"));
}

TEST_F(Rl, ADryRunShowsMemoryAndTheTimeOfBothPhases) {
  const auto plan = [&](const std::string& options) {
    const Result r = mantissa(folder, "rl run.toml --dry-run --json" + options);
    EXPECT_EQ(r.code, 0) << r.err;
    return nlohmann::json::parse(r.out);
  };
  const nlohmann::json whole = plan("");
  EXPECT_GT(whole["memory"]["reference"], 0);
  EXPECT_GT(whole["rollout_seconds_per_step"], 0.0);
  EXPECT_LT(whole["rollout_seconds_per_step"], whole["seconds_per_step"]);
  const nlohmann::json without = plan(" --set rl.kl=none");
  EXPECT_EQ(without["memory"]["reference"], 0);
  // Longer responses take a larger share of a step. The shares hardly depend on the load of the machine.
  const auto share = [](const nlohmann::json& p) {
    return p["rollout_seconds_per_step"].get<double>() / p["seconds_per_step"].get<double>();
  };
  EXPECT_GT(share(plan(" --set rl.max_new_tokens=96")), share(whole));
  const Result text = mantissa(folder, "rl run.toml --dry-run");
  EXPECT_TRUE(has(text.out, " rollout, ") && has(text.out, " training")) << text.out;
  EXPECT_FALSE(std::filesystem::exists(folder / "runs"));
}

}  // namespace
}  // namespace mantissa
