// What the program writes: no output destroys another file, lost output is an error, and a signal ends a
// command with a message.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/cli/run_program.h"

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

TEST(Output, NoOutputReplacesAnInputOrAnotherFileUnasked) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 2, "32-true").code, 0);
  write_ids(folder);
  std::filesystem::create_symlink("ids", folder / "link");
  std::filesystem::create_hard_link(folder / "r/model/model.safetensors", folder / "hard");
  const std::string config = tiny_config(2, "32-true");
  write(folder / "again.toml", config.substr(0, config.find("[model]")) + "[model]\npath = \"r/model\"\n" +
                                   config.substr(config.find("[data]")));
  write(folder / "mine", "a file of the user");
  write(folder / "ds.json", "{'bf16': {'enabled': True}}");
  const std::string weights = read_all(folder / "r/model/model.safetensors"),
                    tokens = read_all(folder / "ids");
  const std::pair<const char*, const char*> cases[] = {
      {"trace r --tokens ids --overwrite --out ids", "ids: is the input itself"},
      {"trace r --tokens ids --overwrite --out link", "link: is the input itself"},
      {"trace r --tokens link --overwrite --out r/../ids", "is the input itself"},
      {"trace r --tokens ids --overwrite --out r/model/model.safetensors", "is the input itself"},
      {"trace r --tokens ids --overwrite --out r/model/config.json", "is the input itself"},
      {"trace r --tokens ids --overwrite --out hard", "is the input itself"},
      {"trace r --tokens ids --overwrite --out ds.json --deepspeed ds.json", "is the input itself"},
      {"trace r --tokens ids --out mine", "mine: exists already"},
      {"trace r --tokens ids --out r", "r: is a directory"},
      {"train again.toml --overwrite --out r", "r/model: the run would replace model.path"},
      {"train again.toml --overwrite --out r --set model.path=r/state/step-00000002",
       "r/state: the run would"},
      {"data kk --out mine", "mine: exists already"},
      {"data kk --out r --overwrite", "r: is a directory"},
      {"data kk --overwrite", "--out"}};
  for (const auto& [arguments, expected] : cases) {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    EXPECT_NE(r.err.find(expected), std::string::npos) << arguments << "\n" << r.err;
    EXPECT_EQ(r.out, "") << arguments;
  }
  EXPECT_EQ(read_all(folder / "r/model/model.safetensors"), weights);
  EXPECT_EQ(read_all(folder / "ids"), tokens);
  EXPECT_EQ(read_all(folder / "mine"), "a file of the user");
  // A trace replaces an earlier one. An empty file and a device hold nothing to lose.
  write(folder / "empty", "");
  for (const char* arguments :
       {"trace r --tokens ids --out t", "trace r --tokens ids --out t --grads",
        "trace r --tokens ids --out empty", "trace r --tokens ids --out r/model/t",
        "trace r --tokens ids --out r/model/t", "trace r --tokens ids --out mine --overwrite",
        "data kk --count 1 --out mine --overwrite", "data kk --count 1 --out new",
        "data kk --count 1 --out /dev/null"}) {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 0) << arguments << "\n" << r.err;
  }
  EXPECT_EQ(read_all(folder / "new"), mantissa(folder, "data kk --count 1").out);
}

TEST(Output, PuzzlesReplaceAFileOnceTheyAreComplete) {
  const TemporaryFolder folder;
  write(folder / "mine", "a file of the user");
  // A process limit stands in for a full disk.
  const Result r = testing::shell(
      folder, "ulimit -f 8 && " MANTISSA_BINARY_DIR "/mantissa data kk --count 500 --out mine --overwrite");
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("exceeds the file size limit"), std::string::npos) << r.err;
  EXPECT_EQ(read_all(folder / "mine"), "a file of the user");
}

TEST(Output, PuzzlesAreWrittenToDevicesAndPipes) {
  const TemporaryFolder folder;
  const std::string program = MANTISSA_BINARY_DIR "/mantissa ", one = program + "data kk --count 1 --out ";
  const std::string puzzle = testing::shell(folder, program + "data kk --count 1").out;
  for (const std::string& line :
       {one + "/dev/stdout", "{ " + one + "/dev/stdout | cat; }", "{ " + one + "/dev/stderr 2>&1; }",
        "{ mkfifo p; " + one + "p & sleep 0.2; timeout 20 cat p; wait; }"}) {
    const Result r = testing::shell(folder, line);
    EXPECT_EQ(r.code, 0) << line << "\n" << r.err;
    EXPECT_EQ(r.out, puzzle) << line;
  }
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "p"));
  const Result unread = mantissa(folder, "data kk --out p");
  EXPECT_EQ(unread.code, 2);
  EXPECT_EQ(unread.err,
            "mantissa: p: is a pipe that no process opened to read in 5 seconds; start its reader\n");
  const Result full = mantissa(folder, "data kk --out /dev/full");
  EXPECT_EQ(full.code, 1);
  EXPECT_EQ(full.err.find("mantissa: /dev/full: the device accepts no more bytes: No space left on device"),
            0U)
      << full.err;
}

TEST(Output, ThatIsLostIsOneMessageAndExitCodeOne) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 2, "32-true").code, 0);
  write_ids(folder);
  for (const char* arguments :
       {"help", "train --help", "version", "manual", "completion bash", "explain run.toml", "inspect r",
        "generate r --prompt Ada --max-new-tokens 2", "eval r --puzzles 0", "loss-scale --overflows 01",
        "data kk", "data kk --count 500", "convert r c --dtype bf16", "trace r --tokens ids --out t --json",
        "train run.toml --out a", "train run.toml --out b --json"}) {
    const Result r = testing::shell(
        folder, "{ " MANTISSA_BINARY_DIR "/mantissa " + std::string(arguments) + " > /dev/full; }");
    EXPECT_EQ(r.code, 1) << arguments;
    EXPECT_EQ(
        r.err,
        "mantissa: standard output: cannot be written: No space left on device. Fix: send it elsewhere, such as to "
        "a file (> FILE)\n")
        << arguments;
  }
  EXPECT_EQ(read_all(folder / "a/model/model.safetensors"), read_all(folder / "r/model/model.safetensors"))
      << "lost lines do not end a run";
  EXPECT_EQ(mantissa(folder, "trian 2> /dev/full").code, 2);
  const Result closed =
      testing::shell(folder, "{ " MANTISSA_BINARY_DIR "/mantissa convert r d --dtype bf16 >&-; }");
  EXPECT_EQ(closed.code, 1);
  EXPECT_EQ(read_all(folder / "d/model.safetensors"), read_all(folder / "c/model.safetensors"));
}

TEST(Output, OfAClosedPipeEndsQuietly) {
  const TemporaryFolder folder;
  const Result r =
      testing::shell(folder, "{ " MANTISSA_BINARY_DIR "/mantissa data kk --count 2000 | head -1; }");
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 1);
  EXPECT_EQ(r.err, "");
}

TEST(Output, OfATrainingRunIntoAClosedPipeDoesNotEndTheRun) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  const Result r = testing::shell(
      folder, "{ { " MANTISSA_BINARY_DIR "/mantissa train run.toml --out a; echo code $? >&2; } | true; }");
  EXPECT_NE(r.err.find("mantissa: standard output: cannot be written: Broken pipe. Fix: send it"),
            std::string::npos)
      << r.err;
  EXPECT_NE(r.err.find("code 1\n"), std::string::npos) << r.err;
  EXPECT_EQ(read_all(folder / "a/model/model.safetensors"), read_all(folder / "r/model/model.safetensors"));
}

TEST(Output, NeedsAValueOfTheHardwareOptions) {
  const TemporaryFolder folder;
  for (const auto& [option, expected] :
       {std::pair{"--simd", "--simd: expected one of avx2, "}, std::pair{"--device", "the value is empty"}}) {
    const Result r = mantissa(folder, fmt::format("doctor {}=", option));
    EXPECT_EQ(r.code, 2);
    EXPECT_NE(r.err.find(expected), std::string::npos) << r.err;
  }
}

class Interrupt : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    ASSERT_EQ(train_tiny(folder_, 2, "32-true").code, 0);
    std::string text;
    for (int i = 0; i < 1'000'000; ++i) text += "Ada said ";
    write(folder_ / "long.txt", text);
  }
  /// Sends the signal once `ready(pid)`, and expects exit code 130. Returns standard output and error.
  template <typename Ready>
  Result interrupted(const std::string& arguments, Ready ready) const {
    const pid_t child = start(folder_, arguments);
    while (!ready(child)) {
      if (!runs(child)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kill(child, GetParam());
    const int status = wait_for(child).status;
    const Result r{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                   read_all(folder_ / "out"), read_all(folder_ / "err")};
    EXPECT_EQ(r.code, 130) << arguments << "\n" << r.err;
    return r;
  }
  static bool has_mapped_weights(pid_t child) {
    return read_all("/proc/" + std::to_string(child) + "/maps").find("model.safetensors") !=
           std::string::npos;
  }
  /// main() handles SIGBUS after the signals that end a command, and sanitizers handle it before main().
  static bool handles_signals(pid_t child) {
    const std::string status = read_all("/proc/" + std::to_string(child) + "/status");
    const std::size_t found = status.find("SigCgt:");
    if (found == std::string::npos) return false;
    const unsigned long long caught = std::stoull(status.substr(found + 7), nullptr, 16);
    const auto handles = [&](int signal) { return ((caught >> (signal - 1)) & 1U) != 0; };
    return handles(SIGINT) && handles(SIGTERM) && handles(SIGBUS);
  }
  static std::string reason() { return GetParam() == SIGINT ? "mantissa: ^C: " : "mantissa: terminated: "; }

  TemporaryFolder folder_;
};

TEST_P(Interrupt, OfGenerateKeepsTheCompletedTokens) {
  const std::string arguments = "generate r --prompt-ids 1 --max-new-tokens 1000000";
  const Result r = interrupted(arguments + " --json", has_mapped_weights);
  EXPECT_EQ(r.err, reason() + "the text ends at the last complete token\n");
  const nlohmann::json json = nlohmann::json::parse(r.out);
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_EQ(json["ids"].size(), json["log_probs"].size());
}

TEST_P(Interrupt, OfEvalReportsThatTheLossIsPartial) {
  const Result r = interrupted("eval r --data long.txt --json", has_mapped_weights);
  EXPECT_EQ(r.err.find(reason()), 0U) << r.err;
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  if (!r.out.empty()) {
    EXPECT_EQ(nlohmann::json::parse(r.out)["interrupted"], true);
    EXPECT_NE(r.err.find("the loss is that of the completed rows"), std::string::npos) << r.err;
  }
}

TEST_P(Interrupt, OfAComparisonKeepsTheConversion) {
  const Result r = interrupted("convert r c --dtype bf16 --data long.txt", [&](pid_t) {
    return std::filesystem::exists(folder_ / "c/model.safetensors");
  });
  EXPECT_EQ(r.err, reason() + "c is complete, but was not compared\n");
  EXPECT_EQ(mantissa(folder_, "inspect c").code, 0);
}

TEST_P(Interrupt, OfAnAuditBeforeItsFirstStepWritesNoReport) {
  const Result r =
      interrupted("audit run.toml --set batch.global_batch_size=65536 --set batch.micro_batch_size=1 --out a",
                  handles_signals);
  EXPECT_EQ(r.err.find(reason()), 0U) << r.err;
  EXPECT_EQ(r.out, "");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
}

TEST_P(Interrupt, OfACommandWithoutPartialResultsEndsIt) {
  for (const char* arguments : {"doctor", "explain run.toml", "data kk --count 10000000 --out new"}) {
    const Result r = interrupted(arguments, handles_signals);
    EXPECT_EQ(r.err, reason() + "the command did not finish\n") << arguments;
    EXPECT_EQ(r.out, "") << arguments;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
}

INSTANTIATE_TEST_SUITE_P(Signals, Interrupt, ::testing::Values(SIGINT, SIGTERM), [](const auto& signal) {
  return signal.param == SIGINT ? std::string("SIGINT") : std::string("SIGTERM");
});

}  // namespace
}  // namespace mantissa
