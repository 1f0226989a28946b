// A reward model as the reward of rl.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>

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

class RewardModelRl : public Rl {
 protected:
  void SetUp() override {
    std::string pairs;
    for (int i = 0; i < 16; ++i)
      pairs += R"({"prompt": "say it", "chosen": ")" + std::string(static_cast<std::size_t>(1 + i % 5), 'a') +
               R"(", "rejected": "zz"})" + "\n";
    write(folder / "pairs.jsonl", pairs);
    write(folder / "reward.toml", reward_config("256"));
    const Result r = mantissa(folder, "train reward.toml --quiet --out rm");
    ASSERT_EQ(r.code, 0) << r.err;
    put(kModel);
  }
  static std::string reward_config(const std::string& vocabulary) {
    return "[run]\nsteps = 4\n[model]\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 1\n"
           "num_attention_heads = 2\nvocab_size = " +
           vocabulary +
           "\n[train]\nobjective = \"reward\"\n[data]\nsource = \"pairs.jsonl\"\ntemplate = \"none\"\n"
           "sequence_length = 32\n[batch]\nglobal_batch_size = 4\n[optimizer]\nlr = 1e-2\n";
  }
  /// Writes run.toml with the reward model in place of a program.
  void put(const std::string& rl, const std::string& more = "", int steps = 6) {
    Rl::put(rl, more, steps);
    std::string text = read_all(folder / "run.toml");
    const std::string program = "reward = \"program:sh letters.sh\"\n";
    text.replace(text.find(program), program.size(), "");
    write(folder / "run.toml", text);
  }

  static constexpr const char* kModel = "reward = \"model\"\nreward_model = \"rm\"\n";
};

TEST_F(RewardModelRl, HasBitsThatDependOnNothingElse) {
  ASSERT_EQ(run("one").code, 0);
  ASSERT_EQ(run("micro", "--set batch.micro_batch_size=1 --threads 2").code, 0);
  EXPECT_TRUE(model("micro") == model("one"));
  EXPECT_EQ(timeless(read_all(folder / "micro/metrics.jsonl")),
            timeless(read_all(folder / "one/metrics.jsonl")));
  EXPECT_NE(metrics("one").back()["reward"], metrics("one").front()["reward"]);
  EXPECT_FALSE(metrics("one").back().contains("accuracy")) << "a score is not right or wrong";
}

TEST_F(RewardModelRl, AResumedRunEndsWithTheSameBytes) {
  write(folder / "prompts.jsonl", R"({"prompt": "say it"})"
                                  "\n"
                                  R"({"prompt": "say more"})"
                                  "\n");
  // Neither the rate nor the prompts depend on the number of steps.
  const std::string constant = "--set schedule.name=constant --set data.source=prompts.jsonl";
  ASSERT_EQ(run("whole", constant).code, 0);
  ASSERT_EQ(run("cut", constant + " --set run.steps=3").code, 0);
  const Result resumed = run("cut", constant + " --resume");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(model("cut") == model("whole"));
  EXPECT_EQ(metrics("cut").size(), 6U);
}

TEST_F(RewardModelRl, IsSharedByRanks) {
  if (!std::filesystem::exists(MANTISSA_BINARY_DIR "/libmantissa_mpi_mpich.so"))
    GTEST_SKIP() << "the build found no MPICH";
  put(kModel, "[batch]\nshards = 2\n", 3);
  ASSERT_EQ(run("alone").code, 0);
  const Result r = testing::shell(
      folder, "mpirun.mpich -n 2 " MANTISSA_BINARY_DIR "/mantissa rl run.toml --quiet --out r");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(model("r") == model("alone"));
  EXPECT_EQ(read_all(folder / "r/samples.jsonl"), read_all(folder / "alone/samples.jsonl"));
}

TEST_F(RewardModelRl, MayHaveAnotherPrecision) {
  ASSERT_EQ(run("f32", "--set run.steps=1").code, 0);
  ASSERT_EQ(run("bf16", "--set run.steps=1 --set rl.reward_precision=bf16-true").code, 0);
  const double f32 = metrics("f32")[0]["reward"], bf16 = metrics("bf16")[0]["reward"];
  EXPECT_NE(f32, bf16);
  // A score below 1 of one layer: 7 products and norms, and the head, each rounded to 8 bits.
  EXPECT_LT(std::abs(f32), 1);
  EXPECT_NEAR(f32, bf16, 8 * 0x1p-8);
  EXPECT_EQ(metrics("f32")[0]["response_length"], metrics("bf16")[0]["response_length"]);
}

TEST_F(RewardModelRl, IsCountedInTheMemoryOfAPlan) {
  const Result plan = mantissa(folder, "explain run.toml --set rl.kl=none");
  EXPECT_TRUE(has(plan.out, "reference ")) << plan.out;
}

TEST_F(RewardModelRl, IsNamedByAnAuditThatDoesNotObserveIt) {
  put(kModel, "", 2);
  const auto verdict = [&](const std::string& options) {
    const Result r = mantissa(folder, "audit run.toml --no-cures --steps 1 --json --out a" + options);
    EXPECT_EQ(r.code, 0) << r.err;
    return nlohmann::json::parse(read_all(folder / "a/audit.json"));
  };
  const nlohmann::json narrow = verdict(" --precision bf16-mixed"), wide = verdict(" --precision 32-true"),
                       mixed = verdict(" --precision 32-true --set rl.reward_precision=bf16-true");
  EXPECT_TRUE(has(narrow["verdict"].get<std::string>(), "Not observed: the passes of the rollouts ("))
      << narrow["verdict"];
  ASSERT_EQ(narrow["passes_not_observed"].size(), 3U);
  EXPECT_TRUE(narrow["passes_not_observed"][2].get<std::string>().starts_with("the reward model ("));
  EXPECT_FALSE(has(wide["verdict"].get<std::string>(), "the passes of")) << wide["verdict"];
  EXPECT_EQ(mixed["passes_not_observed"].size(), 1U);
}

TEST_F(RewardModelRl, MustBeOneOfTheSameVocabulary) {
  write(folder / "other.toml", reward_config("300"));
  ASSERT_EQ(mantissa(folder, "train other.toml --quiet --out other").code, 0);
  EXPECT_TRUE(has(refusal("rl run.toml --out r --set rl.reward_model=other"), "has a vocabulary of 300"));
  ASSERT_EQ(run("lm", "--set run.steps=1").code, 0);
  EXPECT_TRUE(has(refusal("rl run.toml --out r --set rl.reward_model=lm"),
                  "is a language model, which has no scores"));
  EXPECT_TRUE(has(refusal("rl run.toml --out r --set rl.reward_model=none"), "none: not found"));
  EXPECT_TRUE(has(refusal("rl run.toml --out r --set rl.reward=exact"), "only reward = \"model\" reads it"));
  EXPECT_TRUE(has(refusal("rl run.toml --out r --set rl.reward=model:rm"), "path as rl.reward_model"));
  EXPECT_TRUE(has(refusal("rl run.toml --out r --set rl.reward_model="), "needs the reward model"));
  EXPECT_TRUE(has(refusal("rl run.toml --out r --set rl.reward_precision=b16"), "b16"));
  write(folder / "responses.jsonl", R"({"response": "a"})"
                                    "\n");
  EXPECT_TRUE(
      has(refusal("reward model --responses responses.jsonl"), "scores the ids of a run's responses"));
}

TEST_F(RewardModelRl, ScoresHeldOutPromptsInEval) {
  put(kModel, "", 2);
  std::string text = read_all(folder / "run.toml");
  text.replace(text.find("validation = 0.0"), 16, "validation = 0.2");
  write(folder / "run.toml", text);
  ASSERT_EQ(run("r").code, 0);
  double held_out = 0;
  for (const nlohmann::json& m : metrics("r")) held_out = m.value("validation_reward", held_out);
  const Result r = mantissa(folder, "eval r --json");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NEAR(nlohmann::json::parse(r.out)["reward"].get<double>(), held_out, 1e-6);
}

}  // namespace
}  // namespace mantissa
