// Runs under mpirun, of every MPI that the build found: the bits of one process, one message for an error,
// and what killed, stopped and terminated ranks leave behind.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <random>
#include <thread>

#include "app/cli/run_program.h"

namespace mantissa {
namespace {

using testing::has;
using testing::read_all;
using testing::Result;
using testing::TemporaryFolder;
using testing::timeless;
using testing::write;

struct Launcher {
  const char* mpi;
  const char* command;  // with more processes than cores, and as root
  const char* rank;     // the variable with a process's number
};

constexpr Launcher kLaunchers[] = {
    {"openmpi", "mpirun.openmpi --allow-run-as-root --oversubscribe --quiet", "OMPI_COMM_WORLD_RANK"},
    {"mpich", "mpirun.mpich", "PMI_RANK"}};

constexpr int kShared = 80;

/// Steps of 12 rows in 12 shards.
std::string config_of(int steps) {
  std::string text = testing::tiny_config(steps, "bf16-mixed", 1);
  const std::string at = "global_batch_size = 4\n";
  return text.replace(text.find(at), at.size(), "global_batch_size = 12\nshards = 12\n");
}

/// A stage of ZeRO that divides every parameter, as options.
std::string zero(int stage) {
  return " --set distributed.zero=" + std::to_string(stage) + " --set distributed.persistence_threshold=0";
}

class UnderMpi : public ::testing::TestWithParam<Launcher> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(std::string(MANTISSA_BINARY_DIR "/libmantissa_mpi_") + GetParam().mpi +
                                 ".so"))
      GTEST_SKIP() << "the build found no " << GetParam().mpi;
  }

  static std::string line(int ranks, const std::string& arguments) {
    return std::string(GetParam().command) + " -n " + std::to_string(ranks) +
           " " MANTISSA_BINARY_DIR "/mantissa " + arguments;
  }
  Result run(int ranks, const std::string& arguments) const {
    return testing::shell(folder, line(ranks, arguments));
  }

  /// Returns the process of `program` in this test's folder whose environment has `setting`, or 0.
  pid_t process(const std::string& program, const std::string& setting) const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::error_code gone;
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const bool here = std::filesystem::read_symlink(entry.path() / "cwd", gone) == folder.path();
      const bool its = std::filesystem::read_symlink(entry.path() / "exe", gone).filename() == program;
      const std::string environment = std::string(1, '\0') + read_all(entry.path() / "environ");
      if (here && its && has(environment, std::string(1, '\0') + setting)) return std::stoi(name);
    }
    return 0;
  }
  /// Returns the process of a rank in this test's folder, or 0.
  pid_t process_of(int rank) const {
    return process("mantissa", std::string(GetParam().rank) + "=" + std::to_string(rank) + '\0');
  }

  /// Ends Open MPI's launcher if it still waits for itself 20 seconds after its ranks have ended: version 4.1
  /// sometimes does, in PMIx_server_finalize (docs/many-machines.md). Returns true if it was ended.
  bool end_hanging_launcher(const std::atomic<bool>& returned) const {
    using namespace std::chrono_literals;
    for (auto alone = 0ms; alone < 20s; alone += 100ms) {
      if (returned) return false;
      std::this_thread::sleep_for(100ms);
      if (process("mantissa", "") != 0) alone = 0ms;
    }
    const pid_t launcher = process("orterun", "");
    return launcher != 0 && kill(launcher, SIGKILL) == 0;
  }

  /// Starts a run, and sends `signal` to a rank some time after its first state, and SIGCONT after `later`.
  /// Returns the launcher's result. Where the launcher hangs, the run begins anew.
  Result signalled(int signal, int rank, const std::string& arguments, std::chrono::milliseconds later = {}) {
    constexpr int kAttempts = 3;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (attempt > 0 && !has(arguments, "--resume")) std::filesystem::remove_all(folder / "r");
      const std::optional<Result> result = signalled_once(signal, rank, arguments, later);
      if (result) return *result;
    }
    ADD_FAILURE() << "the launcher hung after its ranks had ended, " << kAttempts << " times";
    return {};
  }
  /// The same once. Returns null if the launcher hung.
  std::optional<Result> signalled_once(int signal, int rank, const std::string& arguments,
                                       std::chrono::milliseconds later) {
    Result result;
    std::atomic<bool> returned = false;
    std::thread launcher([&] {
      result = run(3, arguments);
      returned = true;
    });
    const auto start = std::chrono::steady_clock::now();
    const auto waits = [&] { return std::chrono::steady_clock::now() - start < std::chrono::seconds(60); };
    while (waits() && !std::filesystem::exists(folder / "r/state/step-00000003"))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 200));
    if (const pid_t process = process_of(rank); process > 0) {
      kill(process, signal);
      std::this_thread::sleep_for(later);
      if (later.count() > 0 && process_of(rank) == process) kill(process, SIGCONT);
    }
    const bool hung = end_hanging_launcher(returned);
    launcher.join();
    return hung ? std::nullopt : std::optional(result);
  }

  /// Expects that the run continues on another number of ranks, and ends as it does on one.
  void expect_continues(const std::string& whole) const {
    const Result again = run(4, "train run.toml --out r --quiet --resume");
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(read_all(folder / "r/model/model.safetensors"), whole);
  }

  std::string trained_alone(int steps) {
    write(folder / "run.toml", config_of(steps));
    EXPECT_EQ(testing::mantissa(folder, "train run.toml --out alone --quiet").code, 0);
    return read_all(folder / "alone/model/model.safetensors");
  }

  static bool is_openmpi() { return std::string_view(GetParam().mpi) == "openmpi"; }

  TemporaryFolder folder;
  std::mt19937 random{11};
};

TEST_P(UnderMpi, ARunHasTheBytesOfOneProcess) {
  const std::string whole = trained_alone(6);
  for (const auto& [ranks, stage] : {std::pair(2, 0), {3, 1}, {4, 3}}) {
    const Result result = run(ranks, "train run.toml --out r --overwrite" + zero(stage));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "\nmodel ")) << result.out;
    EXPECT_EQ(result.out.find("\nmodel "), result.out.rfind("\nmodel ")) << "printed once\n" << result.out;
    EXPECT_EQ(read_all(folder / "r/model/model.safetensors"), whole) << ranks;
    EXPECT_EQ(timeless(read_all(folder / "r/metrics.jsonl")),
              timeless(read_all(folder / "alone/metrics.jsonl")));
  }
}

/// Ranks that share rows, one process whose threads do, and a run that goes on from one to the other.
TEST_P(UnderMpi, SharedRowsHaveTheBytesOfOneProcess) {
  write(folder / "run.toml", config_of(6) + "[distributed]\nsequence_shards = 2\n");
  EXPECT_EQ(testing::mantissa(folder, "train run.toml --out alone --quiet").code, 0);
  const std::string whole = read_all(folder / "alone/model/model.safetensors");
  for (const auto& [ranks, stage] : {std::pair(2, 3), {4, 0}}) {
    const Result result = run(ranks, "train run.toml --out r --overwrite" + zero(stage));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(read_all(folder / "r/model/model.safetensors"), whole) << ranks;
  }
  EXPECT_EQ(testing::mantissa(folder, "train run.toml --out r --quiet --resume=3").code, 0);
  EXPECT_EQ(read_all(folder / "r/model/model.safetensors"), whole) << "resumed in one process";
}

TEST_P(UnderMpi, AnErrorHasOneMessage) {
  write(folder / "run.toml", config_of(2));
  const auto refused = [&](int ranks, const std::string& arguments, const std::string& message) {
    const Result result = run(ranks, arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_TRUE(has(result.err, message)) << result.err;
    EXPECT_EQ(result.err.find("mantissa: "), result.err.rfind("mantissa: ")) << result.err;
  };
  refused(5, "train run.toml --out r",
          "mantissa: batch.shards = 12: 5 ranks cannot share them equally. Fix: ");
  refused(2, "train missing.toml --out r", "missing.toml");
  refused(2, "inspect r", "2 processes were started, but `inspect` runs in one");
  std::filesystem::create_directories(folder / "r/state/step-00000001");
  refused(3, "train run.toml --out r", "mantissa: r");
}

TEST_P(UnderMpi, AnEvaluationHasTheFiguresOfOneProcess) {
  trained_alone(2);
  const std::string words = "eval alone --data kk --sequence-length 64 --puzzles 3 --max-new-tokens 8 --json";
  const Result whole = testing::mantissa(folder, words);
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Result shared = run(3, words);
  EXPECT_EQ(shared.code, 0) << shared.err;
  EXPECT_EQ(shared.out, whole.out);
  EXPECT_EQ(shared.err, "");
  const Result failed = run(2, "eval alone --data missing.txt");
  EXPECT_EQ(failed.code, 2);
  EXPECT_TRUE(has(failed.err, "missing.txt")) << failed.err;
  EXPECT_EQ(failed.err.find("mantissa: "), failed.err.rfind("mantissa: ")) << failed.err;
}

TEST_P(UnderMpi, AComparisonHasTheReportOfOneProcess) {
  write(folder / "run.toml", config_of(3));
  const std::string words =
      "compare run.toml --precision 32-true,bf16-mixed,bf16-true --seeds 1 --quiet --out ";
  ASSERT_EQ(testing::mantissa(folder, words + "alone").code, 0);
  const Result shared = run(2, words + "r");
  EXPECT_EQ(shared.code, 0) << shared.err;
  EXPECT_EQ(read_all(folder / "r/compare.csv"), read_all(folder / "alone/compare.csv"));
  const auto distance = [&](const char* out) {
    return nlohmann::json::parse(
        read_all(folder / (std::string(out) + "/compare.json")))["runs"][2]["weight_distance"];
  };
  EXPECT_GT(distance("r"), 0);
  EXPECT_EQ(distance("r"), distance("alone"));
  EXPECT_TRUE(has(shared.out, "32-true is the reference")) << shared.out;
  EXPECT_EQ(shared.out.find("report  "), shared.out.rfind("report  ")) << "printed once";
  const Result failed = run(2, "compare run.toml --precision 32-true,bf16-mixed --set data.source=no.txt");
  EXPECT_EQ(failed.code, 2) << failed.err;
  EXPECT_TRUE(has(failed.err, "no.txt")) << failed.err;
  EXPECT_EQ(failed.err.find("mantissa: "), failed.err.rfind("mantissa: ")) << failed.err;
}

TEST_P(UnderMpi, AnAuditHasTheReportOfOneProcess) {
  write(folder / "run.toml", testing::tiny_config(4, "bf16-true"));
  const std::string words = "audit run.toml --steps 3 --set optimizer.lr=1e-6 --quiet --out ";
  ASSERT_EQ(testing::mantissa(folder, words + "alone").code, 0);
  const Result shared = run(2, words + "r");
  EXPECT_EQ(shared.code, 0) << shared.err;
  const auto report = [&](const char* out) {
    nlohmann::json json = nlohmann::json::parse(read_all(folder / (std::string(out) + "/audit.json")));
    json.erase("command");
    for (nlohmann::json& finding : json["findings"]) {
      EXPECT_TRUE(finding["tested"]);
      finding["evidence"].erase("cure_memory");
      finding.erase("alternatives");
    }
    return json;
  };
  EXPECT_FALSE(report("r")["findings"].empty());
  EXPECT_EQ(report("r"), report("alone"));
  EXPECT_EQ(shared.out.find("report  "), shared.out.rfind("report  ")) << "printed once";
}

TEST_P(UnderMpi, ADryRunShowsThePlanOfTheseRanks) {
  write(folder / "run.toml", config_of(4));
  const Result result = run(3, "train run.toml --dry-run --json" + zero(3));
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json ranks = nlohmann::json::parse(result.out)["ranks"];
  EXPECT_EQ(ranks["ranks"], 3);
  EXPECT_EQ(ranks["nodes"], 1);
  EXPECT_EQ(ranks["zero"], 3);
  EXPECT_EQ(ranks["of"].size(), 3U);
  const Result refused = run(5, "train run.toml --dry-run");
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(has(refused.err, "batch.shards = 12: 5 ranks cannot share them equally")) << refused.err;
}

TEST_P(UnderMpi, DoctorMeasuresTheNetwork) {
  const Result result = run(2, "doctor --json");
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json network = nlohmann::json::parse(result.out)["network"];
  EXPECT_EQ(network["ranks"], 2);
  EXPECT_EQ(network["ranks_here"], 2);
  EXPECT_GT(network["latency_seconds"], 0);
  EXPECT_GT(network["bytes_per_second"], 0);
  ASSERT_EQ(network["sums"].size(), 4U);
  for (const nlohmann::json& sum : network["sums"]) {
    const std::uint64_t bytes = sum["reduce"] == "f32" ? 4 : sum["reduce"] == "e5m2" ? 1 : 2;
    EXPECT_EQ(sum["sent_bytes"], network["gradients"].get<std::uint64_t>() * bytes)
        << "half to and half from the other";
  }
}

TEST_P(UnderMpi, AKilledRankEndsAllAndTheRunContinues) {
  const std::string whole = trained_alone(kShared);
  for (const int rank : {0, 2}) {
    std::filesystem::remove_all(folder / "r");
    const Result result = signalled(SIGKILL, rank, "train run.toml --out r --quiet" + zero(rank));
    EXPECT_NE(result.code, 0) << "the run was over before the signal";
    // The launcher kills the others and returns; the system may still be removing them.
    using namespace std::chrono_literals;
    for (auto left = 5000ms; left > 0ms && process_of(0) + process_of(1) + process_of(2) != 0; left -= 10ms)
      std::this_thread::sleep_for(10ms);
    for (int other = 0; other < 3; ++other)
      EXPECT_EQ(process_of(other), 0) << "rank " << other << " still runs";
    expect_continues(whole);
  }
}

// One launcher each: they wait for time limits.
using HangingUnderMpi = UnderMpi;
TEST_P(HangingUnderMpi, ARankThatHangsIsNamed) {
  const std::string whole = trained_alone(kShared);
  const Result result = signalled(SIGSTOP, 1, "train run.toml --out r --quiet --set distributed.timeout=2");
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_TRUE(has(result.err, "rank 1 on ")) << result.err;
  EXPECT_TRUE(has(result.err, "no answer for 2 s (distributed.timeout), so the command ends")) << result.err;
  expect_continues(whole);
}

using LateUnderMpi = UnderMpi;
/// Messages to it are under way when the others give up, and arrive then.
TEST_P(LateUnderMpi, ARankThatComesBackTooLateIsNamedToo) {
  const std::string whole = trained_alone(kShared);
  const Result result = signalled(SIGSTOP, 1, "train run.toml --out r --quiet --set distributed.timeout=2",
                                  std::chrono::milliseconds(3500));
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_TRUE(has(result.err, "no answer for 2 s (distributed.timeout), so the command ends")) << result.err;
  expect_continues(whole);
}

TEST_P(UnderMpi, RanksWithOtherConfigsAreAnError) {
  write(folder / "run.toml", config_of(2));
  const std::string program = " -n 1 " MANTISSA_BINARY_DIR "/mantissa train run.toml --out r ";
  const Result result =
      testing::shell(folder, GetParam().command + program + ":" + program + "--set run.seed=7");
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_TRUE(has(result.err, "has another config than rank 0")) << result.err;
  EXPECT_TRUE(has(result.err, "which has \"seed = 1\"")) << result.err;
  EXPECT_EQ(result.err.find("mantissa: "), result.err.rfind("mantissa: ")) << result.err;
}

TEST_P(UnderMpi, ATerminatedRankLetsAllStopInOrder) {
  const std::string whole = trained_alone(kShared);
  const Result result =
      signalled(SIGTERM, is_openmpi() ? 0 : 1, "train run.toml --out r --quiet" + zero(is_openmpi() ? 2 : 3));
  EXPECT_EQ(result.code, 130) << result.err;
  expect_continues(whole);
}

INSTANTIATE_TEST_SUITE_P(Launchers, UnderMpi, ::testing::ValuesIn(kLaunchers),
                         [](const auto& i) { return std::string(i.param.mpi); });
INSTANTIATE_TEST_SUITE_P(Openmpi, HangingUnderMpi, ::testing::Values(kLaunchers[0]));
INSTANTIATE_TEST_SUITE_P(Mpich, LateUnderMpi, ::testing::Values(kLaunchers[1]));

using SlowUnderMpi = UnderMpi;
TEST_P(SlowUnderMpi, KillsOfRandomRanksLoseNothing) {
  constexpr int kKills = 100;
  const std::string whole = trained_alone(kShared);
  int killed = 0;
  while (killed < kKills) {
    std::filesystem::remove_all(folder / "r");
    const std::string start = "train run.toml --out r --quiet";
    const auto kill_one = [&](const std::string& more) {
      const std::string words = start + more + zero(static_cast<int>(random() % 4));
      return signalled(SIGKILL, static_cast<int>(random() % 3), words).code != 0;
    };
    if (kill_one("")) ++killed;
    while (kill_one(" --resume")) ++killed;
    EXPECT_EQ(read_all(folder / "r/model/model.safetensors"), whole) << killed << " kills";
  }
}
INSTANTIATE_TEST_SUITE_P(Slow, SlowUnderMpi, ::testing::ValuesIn(kLaunchers),
                         [](const auto& i) { return std::string(i.param.mpi); });

TEST(WithoutMpi, ProcessesOfSrunThatNothingConnectsAreAnError) {
  const TemporaryFolder folder;
  const Result result =
      testing::shell(folder, "SLURM_STEP_NUM_TASKS=4 " MANTISSA_BINARY_DIR "/mantissa version");
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(has(result.err, "srun started 4 processes without the support of MPI")) << result.err;
}

TEST(WithoutMpi, ALauncherWhoseLibraryIsMissingIsAnError) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(MANTISSA_BINARY_DIR "/mantissa", folder / "mantissa");
  for (const auto& [variable, package] :
       {std::pair("OMPI_COMM_WORLD_SIZE=2", "libopenmpi-dev"), {"PMI_FD=9", "libmpich-dev"}}) {
    const Result result = testing::shell(folder, std::string(variable) + " ./mantissa version");
    EXPECT_EQ(result.code, 1);
    EXPECT_TRUE(has(result.err, std::string("Fix: install ") + package)) << result.err;
  }
}

}  // namespace
}  // namespace mantissa
