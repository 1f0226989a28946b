// A run that is killed repeatedly ends with the bytes of an uninterrupted run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <random>
#include <regex>
#include <thread>

#include "app/cli/run_program.h"

namespace mantissa {
namespace {

using testing::read_all;
using testing::runs;
using testing::start;
using testing::TemporaryFolder;
using testing::timeless;
using testing::tiny_config;
using testing::wait_for;

constexpr int kSteps = 120;

/// The last step in metrics.jsonl; 0 before the first.
int last_step(const std::filesystem::path& run) {
  const std::string metrics = read_all(run / "metrics.jsonl");
  const std::size_t at = metrics.rfind("\"step\":");
  return at == std::string::npos ? 0 : std::stoi(metrics.substr(at + 7));
}

bool is_complete(const std::filesystem::path& run) {
  return std::filesystem::exists(run / "model") || std::filesystem::exists(run / "summary.json");
}

/// Ends `child` with `signal` as soon as `ready` holds, after another `pause`. Returns whether the child was
/// still running when the signal came: it ended by it, and the run in `run` is not complete.
template <typename Ready>
bool ended_by(pid_t child, int signal, const std::filesystem::path& run, const Ready& ready,
              std::chrono::microseconds pause = {}) {
  while (runs(child) && !ready()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  std::this_thread::sleep_for(pause);
  kill(child, signal);
  const int status = wait_for(child).status;
  const bool by_signal = signal == SIGKILL ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                           : WIFEXITED(status) && WEXITSTATUS(status) == 130;
  EXPECT_TRUE(by_signal || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << "status " << status;
  return by_signal && !is_complete(run);
}

/// A run of kSteps steps under a policy.
struct KilledRun {
  const char* name;
  const char* objective;
  const char* policy;
};

/// Writes run.toml, and pairs for an objective on pairs.
void write_run(const TemporaryFolder& folder, const KilledRun& c) {
  std::string config = tiny_config(kSteps, c.policy);
  if (*c.objective != '\0') {
    config = std::regex_replace(config, std::regex("source = \"kk\""),
                                "source = \"pairs.jsonl\"\ntemplate = \"none\"");
    config += fmt::format("[train]\nobjective = \"{}\"\n", c.objective);
    std::string pairs;
    for (int i = 0; i < 50; ++i) {
      pairs += fmt::format(R"({{"prompt": "{}", "chosen": "yes {}", "rejected": "{}"}})", i, i % 7, i % 5);
      pairs += '\n';
    }
    testing::write(folder / "pairs.jsonl", pairs);
  }
  testing::write(folder / "run.toml", config);
}

class Killed : public ::testing::TestWithParam<KilledRun> {
 protected:
  static std::string train(const std::string& out, int threads) {
    return fmt::format("train run.toml --quiet --resume --threads {} --out {}", threads, out);
  }
  void run_to_its_end(const std::string& out) const {
    ASSERT_EQ(wait_for(start(folder, train(out, 2))).status, 0) << read_all(folder / "err");
    ASSERT_TRUE(is_complete(folder / out));
  }
  void expect_the_bytes_of_the_whole_run() const {
    const std::string model = read_all(folder / "whole/model/model.safetensors");
    EXPECT_FALSE(model.empty());
    EXPECT_EQ(read_all(folder / "parts/model/model.safetensors"), model);
    EXPECT_EQ(timeless(read_all(folder / "parts/metrics.jsonl")),
              timeless(read_all(folder / "whole/metrics.jsonl")));
    EXPECT_EQ(read_all(folder / "parts/health.jsonl"), read_all(folder / "whole/health.jsonl"));
    EXPECT_EQ(last_step(folder / "parts"), kSteps);
  }

  const TemporaryFolder folder;
};
INSTANTIATE_TEST_SUITE_P(Policies, Killed,
                         ::testing::Values(KilledRun{"32_true", "", "32-true"},
                                           KilledRun{"16_mixed", "", "16-mixed loss_scale=dynamic:2^30"},
                                           KilledRun{"bf16_true", "", "bf16-true"},
                                           KilledRun{"dpo_fp8_hybrid", "dpo", "fp8-hybrid"},
                                           KilledRun{"reward_16_mixed", "reward", "16-mixed"}),
                         [](const auto& p) { return std::string(p.param.name); });

TEST_P(Killed, EndsWithTheBytesOfARunThatNeverWas) {
  write_run(folder, GetParam());
  run_to_its_end("whole");
  std::mt19937 random(7);
  int killed = 0, terminated = 0;
  // The signals come 1 to 12 steps after the start, so that six of them fit one run; a run that ends first
  // begins again.
  for (int tries = 0; tries < 24 && killed + terminated < 6; ++tries) {
    if (is_complete(folder / "parts")) std::filesystem::remove_all(folder / "parts");
    const int signal = killed < 2 * (terminated + 1) ? SIGKILL : SIGTERM;
    const int step = last_step(folder / "parts") + 1 + static_cast<int>(random() % 12);
    const pid_t child = start(folder, train("parts", 1 + tries % 2));
    if (ended_by(
            child, signal, folder / "parts", [&] { return last_step(folder / "parts") >= step; },
            std::chrono::microseconds(random() % 8000)))
      ++(signal == SIGKILL ? killed : terminated);
  }
  ASSERT_EQ(killed, 4);
  ASSERT_EQ(terminated, 2);
  run_to_its_end("parts");
  expect_the_bytes_of_the_whole_run();
}

/// A run that saves a state of 12 MB after each of its four steps: a million weights and their moments.
/// Writing one takes longer than seeing that it is being written.
class LargeState : public ::testing::Test {
 protected:
  LargeState() {
    std::string config = tiny_config(4, "32-true");
    config = std::regex_replace(config, std::regex("vocab_size = 256"), "vocab_size = 65536");
    config = std::regex_replace(config, std::regex("interval = 3"), "interval = 1");
    testing::write(folder / "run.toml", config);
  }
  void SetUp() override {
    ASSERT_EQ(wait_for(start(folder, train("whole"))).status, 0) << read_all(folder / "err");
    ASSERT_GT(std::filesystem::file_size(folder / "whole/state/step-00000003/state.safetensors"),
              12'000'000U);
  }
  static std::string train(const std::string& rest) { return "train run.toml --quiet --out " + rest; }
  bool has_state(const std::string& name) const {
    return std::filesystem::exists(folder / "parts/state" / name);
  }
  void resume_and_expect_the_whole_run(const std::string& steps) const {
    ASSERT_EQ(wait_for(start(folder, train("parts --resume"))).status, 0) << read_all(folder / "err");
    const std::string out = read_all(folder / "out");
    EXPECT_NE(out.find("work        " + steps + " of 4 steps"), std::string::npos) << out;
    const std::string model = read_all(folder / "whole/model/model.safetensors");
    EXPECT_FALSE(model.empty());
    EXPECT_EQ(read_all(folder / "parts/model/model.safetensors"), model);
  }

  const TemporaryFolder folder;
};

TEST_F(LargeState, KilledWhileItIsWrittenLeavesTheOneBeforeIt) {
  bool landed = false;
  for (int tries = 0; tries < 10 && !landed; ++tries) {
    std::filesystem::remove_all(folder / "parts");
    const auto writing = [&] { return has_state("step-00000002.partial/state.safetensors"); };
    landed = ended_by(start(folder, train("parts")), SIGKILL, folder / "parts", writing) && writing();
  }
  ASSERT_TRUE(landed) << "no signal came while the state of step 2 was being written";
  EXPECT_TRUE(has_state("step-00000001"));
  EXPECT_FALSE(has_state("step-00000002"));
  resume_and_expect_the_whole_run("3");
  EXPECT_FALSE(has_state("step-00000002.partial"));
}

// A process limit stands in for a full disk: a write fails midway in the same way.
TEST_F(LargeState, ThatFillsTheDiskLeavesTheOneBeforeIt) {
  ASSERT_EQ(wait_for(start(folder, train("parts --set run.steps=2"))).status, 0) << read_all(folder / "err");
  std::filesystem::remove_all(folder / "parts/model");
  const testing::Result full =
      testing::shell(folder, "trap '' XFSZ && ulimit -f 8192 && " MANTISSA_BINARY_DIR "/mantissa " +
                                 train("parts --resume"));
  EXPECT_EQ(full.code, 1) << full.err;
  EXPECT_NE(full.err.find("parts/state/step-00000003"), std::string::npos) << full.err;
  EXPECT_TRUE(has_state("step-00000002"));
  EXPECT_FALSE(has_state("step-00000003"));
  EXPECT_FALSE(has_state("step-00000003.partial"));
  EXPECT_FALSE(std::filesystem::exists(folder / "parts/model"));
  resume_and_expect_the_whole_run("2");
}

}  // namespace
}  // namespace mantissa
