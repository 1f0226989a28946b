// The program as a script sees it: exit codes, one message on standard error, JSON alone on standard output.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <thread>
#include <vector>

#include "app/cli/run_program.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa {
namespace {

using testing::mantissa;
using testing::read_all;
using testing::Result;
using testing::runs;
using testing::start;
using testing::TemporaryFolder;
using testing::tiny_config;
using testing::train_tiny;
using testing::wait_for;
using testing::write;
using testing::write_ids;

TEST(Program, BadUsageIsOneMessageAndExitCodeTwo) {
  const TemporaryFolder folder;
  write(folder / "good.toml", tiny_config(2, "32-true"));
  write(folder / "typo.toml", tiny_config(2, "32-true") + "[log]\nintervall = 2\n");
  const std::pair<const char*, const char*> cases[] = {
      {"trian good.toml", "did you mean train"},
      {"audit nowhere", "nowhere"},
      {"audit good.toml --data x", "states its own data"},
      {"train", "CONFIG"},
      {"train missing.toml", "missing.toml"},
      {"train typo.toml", "interval"},
      {"train good.toml --precision bf17-mixed", "bf16-mixed"},
      {"train good.toml --precision ''", "the policy is empty"},
      {"train good.toml --rule 'lm_head compute=f32'", "--rule 1"},
      {"train good.toml --set run.steps=-3", "run.steps"},
      {"train good.toml --simd sse9", "avx2"},
      {"train good.toml --device cuda", "this build runs on the CPU"},
      {"train good.toml --resume=5", "no state"},
      {"explain good.toml --target v10", "v100"},
      {"explain good.toml --target nowhere.toml", "nowhere.toml"},
      {"train good.toml --target v100", "explain"},
      {"train good.toml --dry-run --rule '*.ln_f: compute=f32'", "did you mean \"model.norm\"?"},
      {"train good.toml --dry-run --json --rule 'model.norm.weight: compute=f32'", "write \"model.norm\""},
      {"train good.toml --precision fp16 --set precision.native_only=true", "f16 is converted"},
      {"explain good.toml --set precision.native_only=perhaps", "precision.native_only"},
      {"loss-scale", "--overflows"},
      {"loss-scale --overflows 012", "--overflows 012"},
      {"loss-scale --torch --hysteresis 2 --overflows 1", "--hysteresis"},
      {"inspect nowhere", "nowhere"},
      {"convert nowhere out", "nowhere"},
      {"convert nowhere", "OUT"},
      {"convert good.toml out --dtype bf17", "did you mean bf16"},
      {"convert good.toml out --dtype mxfp8 --rounding stochastic", "block formats round to nearest"},
      {"convert good.toml out --dtype fp8", "e4m3"},
      {"convert good.toml out --format pt", "did you mean \"pth\"?"},
      {"convert good.toml fresh.pth --format hf", "--format hf does not write checkpoints of PyTorch"},
      {"convert good.toml fresh.gguf --format hf", "--format hf does not write GGUF files"},
      {"convert good.toml fresh --dtype q8_0", "OUT that ends in .gguf"},
      {"convert good.toml out --rounding up", "nearest, stochastic, toward-zero"},
      {"convert good.toml out --saturate", "give --dtype"},
      {"convert good.toml out --dtype f16 --saturate --allow-overflow", "one of them"},
      {"convert good.toml out --precision bf16-mixed", "--data"},
      {"convert good.toml elsewhere --data kk",
       "good.toml: expected a model, got a config. Fix: give the directory of its run"},
      {"convert good.toml elsewhere", "good.toml"},
      {"generate nowhere --prompt x", "nowhere"},
      {"generate nowhere", "--prompt"},
      {"generate nowhere --prompt a --prompt-ids 1", "exactly one"},
      {"generate nowhere --prompt a b", "b"},
      {"eval nowhere", "--data"},
      {"trace nowhere --tokens a --out b", "nowhere"},
      {"data kk --people-max 9", "8"},
      {"data kk --split dev", "--split"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    EXPECT_NE(r.err.find(expected), std::string::npos) << arguments << "\n" << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << arguments << "\n" << r.err;
    EXPECT_EQ(r.out, "") << arguments;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "runs"));
}

TEST(Program, JsonIsAloneOnStandardOutput) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(2, "bf16-mixed"));
  for (const char* arguments :
       {"explain run.toml --json", "explain --target v100 run.toml --target h100 --json",
        "train run.toml --dry-run --target a100 --json", "train run.toml --out r --json",
        "eval r/model --data kk --puzzles 0 --json", "inspect r --json", "diff r r --json",
        "convert r half --dtype bf16 --data kk --json", "explain r/model --target tpu-v5e --json",
        "generate r/model --prompt Ada --max-new-tokens 3 --json", "doctor --json"}) {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 0) << arguments << "\n" << r.err;
    EXPECT_TRUE(nlohmann::json::accept(r.out)) << arguments << "\n" << r.out;
    EXPECT_EQ(r.err, "") << arguments;
  }
  const nlohmann::json g =
      nlohmann::json::parse(mantissa(folder, "generate r/model --prompt Ada --max-new-tokens 3 --json").out);
  EXPECT_EQ(g["prompt_ids"], nlohmann::json({65, 100, 97}));
  EXPECT_EQ(g["ids"].size(), g["log_probs"].size());
}

TEST(Program, RulesOfLaterStepsAreIgnoredWithoutSteps) {
  const TemporaryFolder folder;
  const std::string rules =
      " --rule '{match=\"*\", steps=\"2:\", compute=\"f16\"}' --rule '{match=\"*\", steps=\"1:3\", "
      "compute=\"f32\"}'";
  ASSERT_EQ(train_tiny(folder, 2, "bf16-mixed").code, 0);
  write_ids(folder);
  for (const char* arguments :
       {"generate r/model --prompt Ada --max-new-tokens 3", "eval r/model --data kk --puzzles 0",
        "trace r/model --tokens ids --out t.safetensors"}) {
    const Result with = mantissa(folder, arguments + rules), without = mantissa(folder, arguments);
    EXPECT_EQ(with.code, 0) << with.err;
    EXPECT_EQ(std::count(with.err.begin(), with.err.end(), '\n'), 1) << with.err;
    EXPECT_NE(with.err.find("note: left out: --rule 1 "), std::string::npos) << with.err;
    EXPECT_NE(with.err.find("--rule 2 "), std::string::npos) << with.err;
    EXPECT_EQ(without.err, "");
  }
  const Result plan = mantissa(folder, "explain r/model" + rules);
  EXPECT_NE(plan.out.find("note    left out: --rule 1"), std::string::npos) << plan.out;
  // The evaluation of a config uses the rules of its last step.
  const std::string later = " --rule '{match=\"*\", steps=\"1:\", compute=\"f16\"}'";
  EXPECT_EQ(mantissa(folder, "eval run.toml --puzzles 0 --set run.out=r" + later).code, 0);
}

TEST(Program, ADeepSpeedFileIsReadByEveryCommandWithAPolicy) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(2, "32-true"));
  write(folder / "ds.json",
        "# pasted\n{'fp16': {'enabled': True, 'loss_scale': 0, 'loss_scale_window': 1000, 'hysteresis': 2, "
        "'min_loss_scale': 1}, 'zero_optimization': {'stage': 0}, 'gradient_clipping': 'auto', "
        "'steps_per_print': 10,}\n");
  const auto count = [](const std::string& text, const std::string& word) {
    std::size_t n = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
    return n;
  };
  for (const char* arguments :
       {"train run.toml --out r --deepspeed ds.json", "explain run.toml --deepspeed ds.json",
        "explain r/model --deepspeed ds.json", "eval r/model --data kk --puzzles 0 --deepspeed ds.json",
        "generate r/model --prompt Ada --max-new-tokens 3 --deepspeed ds.json"}) {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 0) << arguments << "\n" << r.err;
    EXPECT_EQ(count(r.out + r.err, "steps_per_print"), 1U) << arguments << "\n" << r.out << r.err;
    EXPECT_EQ(count(r.out + r.err, "\"auto\""), 1U) << arguments << "\n" << r.out << r.err;
    EXPECT_NE((r.out + r.err).find("16-mixed"), std::string::npos) << arguments;
  }
  const nlohmann::json plan =
      nlohmann::json::parse(mantissa(folder, "explain run.toml --deepspeed ds.json --json").out);
  EXPECT_EQ(plan["policy"]["preset"], "custom");
  EXPECT_NE(plan["policy"]["line"].dump().find("residual=f16"), std::string::npos);
  EXPECT_NE(plan["notes"].dump().find("fp16.enabled casts the whole module"), std::string::npos);
  EXPECT_EQ(plan["loss_scale"], "dynamic:2^16");
  EXPECT_NE(plan["warnings"].dump().find("no hysteresis"), std::string::npos);
  EXPECT_NE(plan["notes"].dump().find("gradient_clipping = 1.0 (optimizer.max_grad_norm)"),
            std::string::npos);
  const Result quiet =
      mantissa(folder, "generate r/model --prompt Ada --max-new-tokens 3 --quiet --deepspeed ds.json");
  EXPECT_EQ(quiet.err, "");
  write(folder / "both.json", "{'fp16': {'enabled': True}, 'bf16': {'enabled': True}}");
  for (const char* arguments :
       {"train run.toml --deepspeed both.json", "generate r/model --prompt a --deepspeed both.json",
        "explain run.toml --deepspeed missing.json"}) {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    EXPECT_EQ(count(r.err, "\n"), 1U) << r.err;
    EXPECT_EQ(count(r.err, ".json"), 1U) << r.err;
  }
}

TEST(Program, ATraceKeepsTheFormatsOfUnconvertedTensors) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 2, "32-true").code, 0);
  write_ids(folder);
  const std::string trace =
      "trace r/model --tokens ids --out t --precision 'bf16-true output=compute>f32' --grads ";
  const Result done = mantissa(folder, trace + "--unconverted logits --unconverted 'grad.*norm.weight'");
  ASSERT_EQ(done.code, 0) << done.err;
  const io::SafetensorsReader file(folder / "t");
  EXPECT_EQ(file.find("logits")->dtype, io::Dtype::bf16);
  EXPECT_EQ(file.find("log_probs")->dtype, io::Dtype::f32);
  EXPECT_EQ(file.find("grad.model.norm.weight")->dtype, io::Dtype::bf16);
  EXPECT_EQ(file.find("grad.model.embed_tokens.weight")->dtype, io::Dtype::f32);
  const Result refused = mantissa(folder, trace + "--unconverted logit");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("did you mean \"logits\"?"), std::string::npos) << refused.err;
  EXPECT_EQ(mantissa(folder, "trace r/model --tokens ids --out ''").code, 2);
}

TEST(Program, ConversionsThatOverflowGoThroughWithOneWarning) {
  const TemporaryFolder folder;
  const std::vector<float> values = {1, 70000, -1e30F};
  io::write_safetensors(
      folder / "in.st",
      std::vector<io::TensorToWrite>{{"w", io::Dtype::f32, {3}, std::as_bytes(std::span(values)), nullptr}});
  const Result r = mantissa(folder, "convert in.st inf.st --dtype f16 --json");
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.err,
            "mantissa: warning: 2 of 3 values of w became inf: the largest f16 is 65504, and the largest of "
            "them 1e+30; --saturate keeps them finite\n");
  EXPECT_EQ(nlohmann::json::parse(r.out)["total"]["overflows"], 2);
  EXPECT_EQ(nlohmann::json::parse(r.out)["warnings"].size(), 1U);
  for (const char* option : {"--allow-overflow", "--saturate", "--rounding toward-zero", "--quiet"}) {
    const Result silent =
        mantissa(folder, std::string("convert in.st out.st --dtype f16 --overwrite ") + option);
    EXPECT_EQ(silent.code, 0) << option;
    EXPECT_EQ(silent.err, "") << option;
  }
}

TEST(Program, OptionsWithoutEffectAreNotedOnce) {
  const TemporaryFolder folder;
  const std::vector<float> values(32, 1.0F);
  io::write_safetensors(
      folder / "in.st",
      std::vector<io::TensorToWrite>{{"w", io::Dtype::f32, {32}, std::as_bytes(std::span(values)), nullptr}});
  write(folder / "run.toml", tiny_config(2, "bf16-mixed accumulate_block=32"));
  const std::pair<const char*, const char*> cases[] = {
      {"convert in.st out.st --overwrite --dtype f16 --seed 7",
       "note    --seed 7 has no effect: only --rounding stochastic uses random numbers\n"},
      {"convert in.st out.st --overwrite --dtype mxfp4 --saturate",
       "note    --saturate has no effect: elements of mxfp4 always saturate\n"},
      {"explain run.toml",
       "note    accumulate_block=32 has no effect: no sum is rounded under accumulate=f32\n"},
      {"train run.toml --out r",
       "accumulate_block=32 has no effect: no sum is rounded under accumulate=f32\n"}};
  for (const auto& [arguments, said] : cases) {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 0) << arguments << r.err;
    const std::size_t at = r.out.find(said);
    EXPECT_NE(at, std::string::npos) << arguments << "\n" << r.out;
    EXPECT_EQ(r.out.find("has no effect", at + std::string_view(said).size()), std::string::npos) << r.out;
  }
  EXPECT_EQ(
      mantissa(folder, "convert in.st x.st --dtype f16 --rounding stochastic --seed 7").out.find("note"),
      std::string::npos);
}

TEST(Program, SeveralPromptsGiveTheResultsOfEachAlone) {
  const TemporaryFolder folder;
  write(folder / "Bo", "Bo said");
  ASSERT_EQ(train_tiny(folder, 2, "bf16-mixed").code, 0);
  const std::string common = " --max-new-tokens 9 --temperature 1 --seed 3 --json";
  const auto json = [&](const std::string& arguments) {
    const Result r = mantissa(folder, "generate r/model " + arguments + common);
    EXPECT_EQ(r.code, 0) << arguments << "\n" << r.err;
    return nlohmann::json::parse(r.out);
  };
  nlohmann::json ada = json("--prompt Ada"), bo = json("--prompt-file Bo");
  for (nlohmann::json* each : {&ada, &bo}) {
    EXPECT_GT((*each)["tokens_per_second"], 0);
    each->erase("tokens_per_second");
    EXPECT_EQ(each->size(), 5U);
  }
  const nlohmann::json both = json("--prompt Ada --prompt 'Bo said' --samples 3 --streams 2");
  EXPECT_EQ(both.size(), 2U);
  EXPECT_GT(both["tokens_per_second"], 0);
  ASSERT_EQ(both["generations"].size(), 6U);
  EXPECT_EQ(both["generations"][0], ada);
  EXPECT_EQ(both["generations"][3], bo);
  EXPECT_NE(both["generations"][1]["ids"], ada["ids"]);
  EXPECT_EQ(json("--prompt-file Bo --prompt-file Bo")["generations"], nlohmann::json::array({bo, bo}));
  EXPECT_EQ(
      json("--prompt-ids 66,111,32,115,97,105,100 --prompt-ids '66, 111 32,115,97,105,100'")["generations"],
      nlohmann::json::array({bo, bo}));

  const Result text = mantissa(folder, "generate r/model --prompt a --prompt b --max-new-tokens 2");
  EXPECT_EQ(text.out.find("==> prompt 1, sample 1 <==\n"), 0U) << text.out;
  EXPECT_NE(text.out.find("\n\n==> prompt 2, sample 1 <==\n"), std::string::npos) << text.out;
  EXPECT_EQ(mantissa(folder, "generate r/model --prompt a --max-new-tokens 2").out.find("==>"),
            std::string::npos);
  const std::pair<const char*, const char*> faults[] = {{"--prompt a --prompt ''", "prompt 2 of 2"},
                                                        {"--prompt a --samples 0", "--samples 0"},
                                                        {"--prompt a --streams -1", "--streams -1"}};
  for (const auto& [arguments, expected] : faults) {
    const Result r = mantissa(folder, std::string("generate r/model ") + arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    EXPECT_NE(r.err.find(expected), std::string::npos) << r.err;
  }
}

TEST(Program, ATerminationSignalSavesTheStateAndExitsWith130) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(100000, "32-true"));
  const pid_t child = start(folder, "train run.toml --out r");
  while (read_all(folder / "r/metrics.jsonl").find("\"step\":2,") == std::string::npos) {
    ASSERT_TRUE(runs(child)) << read_all(folder / "err");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  kill(child, SIGTERM);
  const int status = wait_for(child).status;
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  // The state is that of the last step in the metrics, whether or not the interval asks for one there.
  const std::string metrics = read_all(folder / "r/metrics.jsonl");
  const std::size_t last = metrics.rfind("\"step\":");
  ASSERT_NE(last, std::string::npos);
  const long step = std::stol(metrics.substr(last + 7));
  EXPECT_GE(step, 2);
  EXPECT_LT(step, 100000);
  EXPECT_TRUE(std::filesystem::exists(folder / fmt::format("r/state/step-{:08}/state.json", step))) << step;
  EXPECT_FALSE(std::filesystem::exists(folder / "r/model"));
  EXPECT_EQ(read_all(folder / "err"), "");
  const std::string out = read_all(folder / "out");
  EXPECT_NE(out.find("\nterminated state of step "), std::string::npos) << out;
  EXPECT_NE(
      out.find("; to continue:\n        " MANTISSA_BINARY_DIR "/mantissa train run.toml --out r --resume\n"),
      std::string::npos)
      << out;
}

/// Returns true if a process has a descriptor of the file.
bool has_open(pid_t process, const std::filesystem::path& file) {
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process), gone)) {
    if (std::filesystem::read_symlink(entry.path(), gone) == file) return true;
  }
  return false;
}

TEST(Program, AModelTruncatedWhileInUseIsAnError) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 2, "32-true").code, 0);
  const std::filesystem::path weights = folder / "r/model/model.safetensors";
  const pid_t child = start(folder, "generate r/model --prompt-ids 1 --max-new-tokens 1000000");
  // Until it has read what it reads into memory of its own, and computes from what it has mapped.
  while (!has(read_all(fmt::format("/proc/{}/maps", child)), weights.string()) || has_open(child, weights))
    ASSERT_TRUE(runs(child)) << read_all(folder / "err");
  std::filesystem::resize_file(weights, 0);
  const int status = wait_for(child).status;
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_TRUE(has(read_all(folder / "err"), "was truncated while it was read")) << read_all(folder / "err");
  EXPECT_EQ(read_all(folder / "out"), "");
}

TEST(Program, AStackThatIsTooSmallIsAnError) {
  const TemporaryFolder folder;
  const Result r = testing::shell(folder, "prlimit --stack=131072 " MANTISSA_BINARY_DIR "/mantissa version");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.err, "the stack is limited to 128 KiB, and the program needs 1024")) << r.err;
  EXPECT_EQ(testing::shell(folder, "prlimit --stack=1048576 " MANTISSA_BINARY_DIR "/mantissa version").code,
            0);
}

TEST(Program, PuzzlesOfTheTwoSplitsDiffer) {
  const TemporaryFolder folder;
  const Result train = mantissa(folder, "data kk --count 50 --people-max 2");
  const Result test = mantissa(folder, "data kk --count 50 --people-max 2 --split test");
  EXPECT_EQ(train.code, 0);
  EXPECT_EQ(std::count(test.out.begin(), test.out.end(), '\n'), 50);
  std::istringstream rows(test.out);
  for (std::string row; std::getline(rows, row);) {
    const nlohmann::json json = nlohmann::json::parse(row);
    EXPECT_EQ(train.out.find(json["quiz"].dump()), std::string::npos) << json["quiz"];
  }
}

}  // namespace
}  // namespace mantissa
