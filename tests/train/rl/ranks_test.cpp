// Reinforcement learning on several ranks: the samples, rewards and weights of one process, and one reward
// program.
#include <gtest/gtest.h>

#include "train/rl/rl_run.h"

namespace mantissa {
namespace {

using testing::has;
using testing::read_all;
using testing::Result;
using testing::timeless;
using testing::write;

class RlOnRanks : public testing::Rl {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(MANTISSA_BINARY_DIR "/libmantissa_mpi_mpich.so"))
      GTEST_SKIP() << "the build found no MPICH";
    Rl::SetUp();
    // The reward of a response depends on the number of responses before it.
    write(
        folder / "count.sh",
        "#!/bin/sh\necho start >> starts\nn=${MANTISSA_REWARD_POSITION:-0}\nwhile read -r line; do\n  n=$((n + 1))\n"
        "  echo \"{\\\"reward\\\":$((n * 7 % 5)),\\\"parts\\\":{\\\"n\\\":$n}}\"\ndone\n");
  }
  Result words_on(int ranks, const std::string& words) {
    return testing::shell(
        folder, "mpirun.mpich -n " + std::to_string(ranks) + " " MANTISSA_BINARY_DIR "/mantissa " + words);
  }
  Result run_on(int ranks, const std::string& out, const std::string& options = "") {
    return words_on(ranks, "rl run.toml --quiet --allow-programs --out " + out + " " + options);
  }
};

TEST_F(RlOnRanks, HasTheBytesOfOneProcess) {
  for (const char* reward : {"reward = \"program:sh count.sh\"\n", ""}) {
    put("algorithm = \"ppo\"\nepochs = 2\nkl = \"k3\"\n", "[batch]\nshards = 4\n");
    std::string text = read_all(folder / "run.toml");
    const std::string program = "reward = \"program:sh letters.sh\"\n";
    if (*reward != '\0') text.replace(text.find(program), program.size(), reward);
    text.replace(text.find("validation = 0.0"), 16, "validation = 0.1");
    write(folder / "run.toml", text);
    const Result alone = run("alone", "--overwrite");
    ASSERT_EQ(alone.code, 0) << alone.err;
    std::filesystem::remove(folder / "starts");
    for (const int ranks : {2, 4}) {
      const std::string zero = " --set distributed.zero=" + std::to_string(ranks / 2);
      const Result r = run_on(ranks, "r", "--overwrite" + zero);
      ASSERT_EQ(r.code, 0) << r.err;
      EXPECT_EQ(model("r"), model("alone")) << ranks;
      EXPECT_EQ(read_all(folder / "r/samples.jsonl"), read_all(folder / "alone/samples.jsonl")) << ranks;
      EXPECT_EQ(timeless(read_all(folder / "r/metrics.jsonl")),
                timeless(read_all(folder / "alone/metrics.jsonl")))
          << ranks;
      const Result again = run_on(6 - ranks, "r", "--resume=2" + zero);
      ASSERT_EQ(again.code, 0) << again.err;
      EXPECT_EQ(model("r"), model("alone")) << "resumed on " << 6 - ranks;
      EXPECT_EQ(read_all(folder / "r/samples.jsonl"), read_all(folder / "alone/samples.jsonl"));
    }
    if (*reward != '\0') {
      EXPECT_EQ(read_all(folder / "starts"), "start\nstart\nstart\nstart\n") << "one in each run";
    }
  }
}

TEST_F(RlOnRanks, ShareRowsWithTheBytesOfOneProcess) {
  put("algorithm = \"ppo\"\nepochs = 2\nkl = \"k3\"\n", "[batch]\nshards = 4\n");
  const std::string parts = " --set distributed.sequence_shards=2";
  const Result alone = run("alone", parts);
  ASSERT_EQ(alone.code, 0) << alone.err;
  for (const int ranks : {2, 4}) {
    const Result r = run_on(ranks, "r", "--overwrite --set distributed.zero=2" + parts);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(model("r"), model("alone")) << ranks;
    EXPECT_EQ(read_all(folder / "r/samples.jsonl"), read_all(folder / "alone/samples.jsonl")) << ranks;
    EXPECT_EQ(timeless(read_all(folder / "r/metrics.jsonl")),
              timeless(read_all(folder / "alone/metrics.jsonl")))
        << ranks;
  }
}

TEST_F(RlOnRanks, SamplesWithAllWeights) {
  put("", "[batch]\nshards = 4\n");
  const Result r = run_on(2, "r", "--set distributed.zero=3 --set distributed.persistence_threshold=0");
  EXPECT_EQ(r.code, 2) << r.err;
  EXPECT_TRUE(has(r.err, "distributed.zero = 3: this objective reads all weights at once")) << r.err;
}

TEST_F(RlOnRanks, AnEvaluationHasTheResponsesOfOneProcessAndOneProgram) {
  put("", "", 1);
  std::string text = read_all(folder / "run.toml");
  text.replace(text.find("letters.sh"), 10, "count.sh");
  text.replace(text.find("validation = 0.0"), 16, "validation = 0.1");
  write(folder / "run.toml", text);
  ASSERT_EQ(run("r").code, 0);
  const std::string words = "eval r --allow-programs --json --puzzles 7";
  const Result alone = testing::mantissa(folder, words);
  ASSERT_EQ(alone.code, 0) << alone.err;
  std::filesystem::remove(folder / "starts");
  for (const int ranks : {2, 3}) {
    const Result shared = words_on(ranks, words);
    EXPECT_EQ(shared.code, 0) << shared.err;
    EXPECT_EQ(shared.out, alone.out) << ranks;
  }
  EXPECT_EQ(read_all(folder / "starts"), "start\nstart\n") << "one on each number of ranks";
}

TEST_F(RlOnRanks, AProgramThatFailsHasOneMessage) {
  put("", "[batch]\nshards = 4\n");
  write(folder / "letters.sh", "#!/bin/sh\nexit 3\n");
  const Result r = run_on(2, "r");
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_TRUE(has(r.err, "mantissa: ")) << r.err;
  EXPECT_EQ(r.err.find("mantissa: "), r.err.rfind("mantissa: ")) << r.err;
}

}  // namespace
}  // namespace mantissa
