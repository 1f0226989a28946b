// Reinforcement learning that stops: by overflows, by its reward program, and by settings that do not fit.
#include <gtest/gtest.h>

#include <regex>

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

TEST_F(Rl, ARunThatStopsIsReplayedUnderAnotherPolicy) {
  put("", "", 3);
  const Result r = run("r", "--precision 16-true --set rl.reward=regex:a --set model.initializer_range=10");
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_TRUE(has(r.err, "step 1: response 1 of 4 to puzzle")) << r.err;
  EXPECT_TRUE(has(r.err, "sampled under \"16-true\": the logits after token ")) << r.err;
  EXPECT_TRUE(has(r.err, "are not finite; the first non-finite value is model.layers.0")) << r.err;
  EXPECT_TRUE(has(r.err, "fix (tested)") && has(r.err, "--resume --precision 32-true")) << r.err;
}

TEST_F(Rl, ARunThatStopsInItsFirstValidationIsReplayedToo) {
  put("", "", 3);
  const std::string options =
      " --set rl.reward=regex:a --set model.initializer_range=10 --set data.validation=0.5";
  const Result r = run("r", "--precision 16-true" + options);
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_TRUE(has(r.err, "validation before the first step: the response to held-out puzzle")) << r.err;
  EXPECT_TRUE(has(r.err, "fix (tested)") && has(r.err, "--resume --precision 32-true")) << r.err;
  EXPECT_EQ(run("r", "--resume --precision 32-true" + options).code, 0) << read_all(folder / "err");
  const Result e = mantissa(folder, "eval r --allow-programs --precision 16-true");
  EXPECT_EQ(e.code, 1) << e.out;
  EXPECT_TRUE(has(e.err, "eval: the response to held-out puzzle")) << e.err;
}

TEST_F(Rl, ASamplingPolicyThatOverflowsIsReplacedByThatOfTraining) {
  put("rollout_precision = \"16-true\"\n", "", 3);
  const std::string options = " --set rl.reward=regex:a --set model.initializer_range=10";
  const Result r = run("r", options);
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_TRUE(has(r.err, "sampled under \"16-true params=f32\"")) << r.err;
  EXPECT_TRUE(has(r.err, "fix (tested)") && has(r.err, "--resume --set rl.rollout_precision=\n")) << r.err;
  EXPECT_EQ(run("r", "--resume --set rl.rollout_precision=" + options).code, 0) << read_all(folder / "err");
}

TEST_F(Rl, AFailingRewardProgramLosesNothing) {
  write(folder / "fails.sh",
        "n=0\nwhile read -r line; do n=$((n+1)); if [ $n -gt 30 ]; then echo oops >&2; "
        "exit 3; fi; echo '{\"reward\":1}'; done\n");
  write(folder / "ones.sh", "while read -r line; do echo '{\"reward\":1}'; done\n");
  const Result r = run("r", "--set 'rl.reward=program:sh fails.sh'");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.err, "oops")) << r.err;
  EXPECT_TRUE(has(r.err, "step 3: the reward program")) << r.err;
  EXPECT_TRUE(std::filesystem::exists(folder / "r/state/step-00000002"));
  // An audit observes the model, so it does not show why a program failed.
  const Result shown = mantissa(folder, "rl run.toml --out shown --set 'rl.reward=program:sh fails.sh'");
  EXPECT_EQ(shown.code, 1);
  EXPECT_FALSE(has(shown.out + shown.err, "mantissa audit")) << shown.out << shown.err;
  // The program that works continues with the bits of a run that never failed.
  ASSERT_EQ(run("whole", "--set 'rl.reward=program:sh ones.sh'").code, 0) << read_all(folder / "err");
  ASSERT_EQ(run("r", "--resume --set 'rl.reward=program:sh ones.sh'").code, 0) << read_all(folder / "err");
  EXPECT_EQ(model("r"), model("whole"));
  EXPECT_EQ(timeless(read_all(folder / "r/metrics.jsonl")),
            timeless(read_all(folder / "whole/metrics.jsonl")));
}

TEST_F(Rl, ARewardProgramThatFailsInValidationIsAskedAgain) {
  // Responses 1 and 2 belong to the first validation, 27 and 28 to that after step 2, 79 and 80 to the last.
  const std::string held_out = " --set data.validation=0.12";
  ASSERT_EQ(run("whole", held_out).code, 0) << read_all(folder / "err");
  const double prompts = metrics("whole").front()["validation_prompts"];
  ASSERT_EQ(prompts, 2);
  for (const auto& [last, when] :
       {std::pair{1, "before the first step"}, {27, "after step 2"}, {79, "after step 6"}}) {
    SCOPED_TRACE(when);
    std::string program = read_all(folder / "letters.sh");
    program.replace(program.find("  response="), 0,
                    "  n=$((n+1)); [ $n -gt " + std::to_string(last) + " ] && exit 3\n");
    write(folder / "fails.sh", program);
    const Result r = run("r", "--overwrite --set 'rl.reward=program:sh fails.sh'" + held_out);
    EXPECT_EQ(r.code, 1);
    EXPECT_TRUE(has(r.err, "validation " + std::string(when) + ": the reward program")) << r.err;
    ASSERT_EQ(run("r", "--resume" + held_out).code, 0) << read_all(folder / "err");
    EXPECT_EQ(model("r"), model("whole"));
    EXPECT_EQ(read_all(folder / "r/samples.jsonl"), read_all(folder / "whole/samples.jsonl"));
    EXPECT_EQ(timeless(read_all(folder / "r/metrics.jsonl")),
              timeless(read_all(folder / "whole/metrics.jsonl")));
  }
}

TEST_F(Rl, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(has(refusal("train run.toml --out x"), "mantissa rl run.toml"));
  EXPECT_TRUE(has(refusal("rl run.toml --allow-programs --out x --set train.objective=sft"),
                  "train.objective is \"sft\". Fix: mantissa train"));
  EXPECT_TRUE(
      has(refusal("rl run.toml --allow-programs --out x --set rl.samples_per_prompt=1"), "at least 2"));
  EXPECT_TRUE(has(refusal("rl run.toml --allow-programs --out x --set rl.minibatches=5"),
                  "must divide the 12 samples"));
  EXPECT_TRUE(
      has(refusal("rl run.toml --allow-programs --out x --set batch.global_batch_size=8"), "= 12 sequences"));
  EXPECT_TRUE(has(refusal("rl run.toml --allow-programs --out x --set rl.rollout_precision=fp7"),
                  "rl.rollout_precision"));
  EXPECT_TRUE(
      has(refusal("rl run.toml --allow-programs --out x --set rl.reference=none"), "rl.kl = \"none\""));
  EXPECT_TRUE(
      has(refusal("rl run.toml --allow-programs --out x --set data.sequence_length=40"), "max_new_tokens"));
  EXPECT_TRUE(has(refusal("rl run.toml --allow-programs --out x --set rl.algorithm=gppo"), "did you mean"));
  EXPECT_TRUE(has(
      refusal(
          "rl run.toml --allow-programs --out x --set rl.rollout_precision=bf16-mixed --set adapter.kind=lora "
          "--set model.path=b"),
      "model"));
}

// A run or a config may come from somebody else.
TEST_F(Rl, AProgramThatAConfigNamesRunsByPermissionAlone) {
  put("", "", 1);
  write(folder / "letters.sh", "touch ran\n" + read_all(folder / "letters.sh"));
  const auto ran = [&] { return std::filesystem::remove(folder / "ran"); };
  const char* needs = "rl.reward = \"program:sh letters.sh\": expected a permission to run this command";
  EXPECT_TRUE(has(refusal("rl run.toml --out r"), needs));
  EXPECT_TRUE(has(refusal("audit run.toml --out a"), needs));
  EXPECT_TRUE(has(refusal("compare run.toml --precision 32-true,bf16-mixed --out c"), needs));
  EXPECT_FALSE(ran());
  EXPECT_FALSE(std::filesystem::exists(folder / "r"));
  EXPECT_EQ(mantissa(folder, "rl run.toml --dry-run").code, 0);
  EXPECT_FALSE(ran());
  ASSERT_EQ(run("r", "--set data.validation=0.2").code, 0);
  EXPECT_TRUE(ran());
  EXPECT_TRUE(has(refusal("eval r"), needs));
  EXPECT_FALSE(ran());
  const Result named =
      mantissa(folder, "rl run.toml --quiet --out n --set 'rl.reward=program:sh letters.sh'");
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_TRUE(ran());
}

}  // namespace
}  // namespace mantissa
