// The program that a run asks for rewards: the exchange, its faults, its end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "mantissa/core/base/error.h"
#include "text/reward/scoring.h"
#include "text/rows/temp_files.h"

namespace mantissa::reward {
namespace {

using namespace std::chrono_literals;
using text::error_of;
using text::has;
using Clock = std::chrono::steady_clock;

/// A program whose reward is its own process number.
const std::string kNumber = R"(program:while read -r line; do echo "{\"reward\": $$}"; done)";

std::unique_ptr<Rule> program(const std::string& command, double timeout = 20) {
  RuleOptions options;
  options.timeout = timeout;
  return make_rule("program:" + command, options);
}

/// Returns true if the process exists and is not a zombie.
bool runs(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string text{std::istreambuf_iterator<char>(stat), {}};
  const std::size_t state = text.rfind(')');
  return state != std::string::npos && text.size() > state + 2 && text[state + 2] != 'Z' &&
         text[state + 2] != 'X';
}

/// Waits for the file to have a whole line, and returns it as a number.
pid_t number_in(const std::string& path) {
  for (int i = 0; i < 500; ++i, std::this_thread::sleep_for(10ms)) {
    std::ifstream in(path);
    std::string line;
    if (std::getline(in, line) && !in.eof()) return static_cast<pid_t>(std::stol(line));
  }
  ADD_FAILURE() << path << " stays empty";
  return 0;
}

void expect_end_of(pid_t process) {
  for (int i = 0; i < 500 && runs(process); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(runs(process));
}

TEST(RewardProgram, OneProcessScoresAllRollouts) {
  const auto rule = make_rule(kNumber);
  const std::vector<double> first = totals_of(*rule, {"a", "b"}), second = totals_of(*rule, {"c"});
  EXPECT_EQ(first[0], first[1]);
  EXPECT_EQ(first[0], second[0]);
  EXPECT_TRUE(runs(static_cast<pid_t>(first[0])));
  EXPECT_TRUE(scores_of(*rule, {}).empty()) << "no samples need no answer";
}

TEST(RewardProgram, GetsPromptResponseAndRowInOneLineEach) {
  const text::TempFiles files;
  const auto rule = program("while read -r l; do printf '%s\\n' \"$l\" >> " + files.path("got") +
                            R"(; echo '{"reward": 1}'; done)");
  const nlohmann::ordered_json row = {{"z", {1, 2}}, {"a", "x\ny"}, {"n", nullptr}, {"f", 0.1}};
  const std::string response = "a\n\"b\"\\ \u2028\t" + std::string(1, '\0') + "é\xff";
  const Sample sample{"p\nq", response, &row};
  ASSERT_EQ(rule->score({&sample, 1}).size(), 1U);
  std::ifstream in(files.path("got"));
  std::string line;
  ASSERT_TRUE(std::getline(in, line));
  EXPECT_EQ(line, R"({"prompt":"p\nq","response":"a\n\"b\"\\ )"
                  "\u2028"
                  R"(\t\u0000é)"
                  "\ufffd"
                  R"(","row":{"z":[1,2],"a":"x\ny","n":null,"f":0.1}})");
  EXPECT_FALSE(std::getline(in, line));
}

TEST(RewardProgram, ItsPartsAndRewardsAreInTheOrderOfTheSamples) {
  const auto rule = program(
      R"(n=0; while read -r l; do n=$((n+1)); echo "{\"reward\": $n, \"parts\": {\"half\": $n.5}}"; done)");
  const std::vector<Score> scores = scores_of(*rule, std::vector<std::string>(100, "x"));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(scores.at(i).total, i + 1);
    EXPECT_EQ(scores[i].parts, (decltype(scores[i].parts){{"half", i + 1.5}}));
  }
}

TEST(RewardProgram, MayAnswerBeforeItHasReadEverything) {
  // Both directions exceed what pipes hold, so neither side may wait for the other to finish.
  const auto rule = program(
      "p=$(head -c 100000 /dev/zero | tr '\\0' x); exec sed -u \"s/.*/{\\\"reward\\\": 1, \\\"pad\\\": "
      "\\\"$p\\\"}/\"");
  EXPECT_EQ(totals_of(*rule, std::vector<std::string>(64, std::string(20000, 'r'))),
            std::vector<double>(64, 1));
}

TEST(RewardProgram, KnowsHowManySamplesWereScoredBefore) {
  RuleOptions options;
  options.position = 1234567890123;
  const auto rule = make_rule(
      R"(program:while read -r l; do echo "{\"reward\": $MANTISSA_REWARD_POSITION}"; done)", options);
  EXPECT_EQ(rule->position(), 1234567890123);
  EXPECT_EQ(totals_of(*rule, {"a", "b"}), (std::vector<double>{1234567890123, 1234567890123}));
  EXPECT_EQ(rule->position(), 1234567890125);
  EXPECT_EQ(make_rule("kk")->position(), 0);
}

TEST(RewardProgram, LeadsAGroupThatATerminalsInterruptDoesNotReach) {
  const auto rule = make_rule(kNumber);
  const auto process = static_cast<pid_t>(totals_of(*rule, {"a"})[0]);
  EXPECT_EQ(getpgid(process), process);
  EXPECT_NE(getpgid(process), getpgrp());
}

TEST(RewardProgram, StartsWithDefaultSignalsWhateverTheRunBlocks) {
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  const auto rule = make_rule(kNumber);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const auto process = static_cast<pid_t>(totals_of(*rule, {"a"})[0]);
  kill(process, SIGTERM);
  EXPECT_TRUE(has(error_of<RunStopped>([&] { totals_of(*rule, {"b"}); }), "signal 15"));
}

struct Fault {
  const char* name;
  std::string command;
  std::vector<std::string> message;
};

class FaultyProgram : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultyProgram, StopsTheRunWithAMessage) {
  const auto start = Clock::now();
  const std::string message = error_of<RunStopped>([] {
    const auto rule = program(GetParam().command, 2);
    totals_of(*rule, {std::string(300000, 'a'), "b", "c"});  // more than a pipe holds
  });
  EXPECT_TRUE(has(message, "the reward program \""));
  for (const std::string& part : GetParam().message) EXPECT_TRUE(has(message, part));
  EXPECT_LT(Clock::now() - start, 15s);
}

const std::string kOk = R"(echo '{"reward": 1}')";

INSTANTIATE_TEST_SUITE_P(
    Kinds, FaultyProgram,
    ::testing::Values(
        Fault{"Missing",
              "no_such_command_of_a_test",
              {"exited with status 127", "finds no such command", "not found"}},
        Fault{"Exit",
              "read l; " + kOk + "; echo out of memory >&2; exit 3",
              {"exited with status 3 after 1 of 3 responses", "its standard error ends with: out of memory"}},
        Fault{"QuietExit",
              "read l; exit 0",
              {"exited with status 0 after 0 of 3 responses", "it wrote nothing to standard error"}},
        Fault{"Crash",
              "read l; echo before >&2; kill -SEGV $$",
              {"was ended by signal 11 (Segmentation fault) after 0 of 3", "ends with: before"}},
        Fault{"Killed", "read l; kill -KILL $$", {"signal 9"}},
        Fault{
            "Silence", "cat > /dev/null", {"wrote 0 of 3 lines in 2 s, its time limit", "flush its output"}},
        Fault{"SilenceWithoutReading", "sleep 100", {"wrote 0 of 3 lines in 2 s"}},
        Fault{"TooFewLines",
              "read l; " + kOk + "; read l; " + kOk + "; cat > /dev/null; sleep 100",
              {"wrote 2 of 3 lines in 2 s"}},
        Fault{
            "TooManyLines",
            "for i in 1 2; do read l; " + kOk + "; done; read l; printf '{\"reward\": %s}\\n' 1 2; sleep 100",
            {"wrote output that no response asked for: \"{\"reward\": 2}\""}},
        Fault{"Garbage",
              "read l; " + kOk + "; read l; echo 'Traceback: no'; sleep 100",
              {"wrote a line for response 2 of 3 that is not JSON at byte 1: \"Traceback: no\""}},
        Fault{
            "Binary", "read l; head -c 100 /dev/zero; echo; sleep 100", {"response 1 of 3 that is not JSON"}},
        Fault{"NotANumber", "read l; echo '{\"reward\": NaN}'; sleep 100", {"response 1 of 3 that has NaN"}},
        Fault{"Infinite", "read l; echo '{\"reward\": 1e300}'; sleep 100", {"beyond the range of f32"}},
        Fault{"NoReward",
              "read l; echo '{\"score\": 1}'; sleep 100",
              {"response 1 of 3 that has no \"reward\""}},
        Fault{"BlankLine", "read l; echo; sleep 100", {"response 1 of 3 that is blank"}},
        Fault{"HugeLine",
              "read l; head -c 30000000 /dev/zero | tr '\\0' x; sleep 100",
              {"wrote a line of more than 1048576 bytes for response 1 of 3"}},
        Fault{
            "EndlessLine", "read l; cat /dev/zero | tr '\\0' x", {"wrote a line of more than 1048576 bytes"}},
        Fault{"EndlessErrors", "yes lost >&2", {"wrote 0 of 3 lines in 2 s", "lost | lost"}},
        Fault{"ClosedInput", "exec <&-; sleep 100", {"has closed its standard input after 0 of 3 responses"}},
        Fault{"ClosedOutput",
              "exec >&-; cat >/dev/null; sleep 100",
              {"has closed its standard output after 0 of 3"}},
        Fault{"ClosedBoth", "exec <&- >&-; echo here >&2; sleep 100", {"has closed its standard", "here"}},
        Fault{"EndsAfterTheAnswers",
              "read l; " + kOk + "; read l; " + kOk + "; exit 0",
              {"exited with status 0 after 2"}},
        Fault{
            "IgnoresTermination", "trap '' TERM; while :; do sleep 1; done", {"wrote 0 of 3 lines in 2 s"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(RewardProgram, ALineTooManyStopsTheNextRollout) {
  const text::TempFiles files;
  const auto rule = program("read l; " + kOk + "; read l; " + kOk + "; " + kOk + "; echo 1 > " +
                            files.path("done") + "; sleep 100");
  EXPECT_EQ(totals_of(*rule, {"a"}).size(), 1U);
  const std::string message = error_of<RunStopped>([&] {
    totals_of(*rule, {"b"});  // the line too many may come with this answer, or after it
    number_in(files.path("done"));
    totals_of(*rule, {"c"});
  });
  EXPECT_TRUE(has(message, "no response asked for"));
}

TEST(RewardProgram, ALineTooManyIsFoundAtTheEnd) {
  const auto rule = program("while read -r l; do " + kOk + "; done; " + kOk);
  EXPECT_EQ(totals_of(*rule, {"a", "b"}).size(), 2U);
  EXPECT_TRUE(has(error_of<RunStopped>([&] { rule->finish(); }), "no response asked for"));
  const auto good = program("while read -r l; do " + kOk + "; done; echo bye >&2");
  totals_of(*good, {"a", "b"});
  good->finish();
}

TEST(RewardProgram, AProgramThatEndedBetweenRolloutsIsNamedInTheNext) {
  const auto rule = program("read l; " + kOk + "; echo no more >&2; exit 4");
  EXPECT_EQ(totals_of(*rule, {"a"}), std::vector<double>{1});
  EXPECT_TRUE(has(error_of<RunStopped>([&] { totals_of(*rule, {"b"}); }),
                  "exited with status 4 after 0 of 1 response; its standard error ends with: no more"));
  EXPECT_EQ(rule->position(), 1);
}

TEST(RewardProgram, TheLastLinesOfItsErrorsAreShown) {
  const auto rule = program(
      "read l; for i in $(seq 100000); do echo line $i; done >&2; printf '\\033[31mlast\\n' >&2; exit 1");
  const std::string message = error_of<RunStopped>([&] { totals_of(*rule, {"a"}); });
  EXPECT_TRUE(has(message, "line 99999 | line 100000 | \\x1b[31mlast"));
  EXPECT_FALSE(message.find("line 99000") != std::string::npos);
  EXPECT_LT(message.size(), 4000U);
}

TEST(RewardProgram, AStopEndsTheWait) {
  const text::TempFiles files;
  auto rule = program("echo $$ > " + files.path("number") + "; cat > /dev/null; sleep 100", 1000);
  const pid_t process = number_in(files.path("number"));
  std::stop_source stop;
  const std::jthread later([&] {
    std::this_thread::sleep_for(200ms);
    stop.request_stop();
  });
  const auto start = Clock::now();
  EXPECT_TRUE(scores_of(*rule, {"a"}, nlohmann::ordered_json::object(), stop.get_token()).empty());
  EXPECT_EQ(rule->position(), 0) << "a resumed run asks again";
  EXPECT_LT(Clock::now() - start, 10s);
  rule.reset();
  EXPECT_LT(Clock::now() - start, 15s);
  expect_end_of(process);
}

TEST(RewardProgram, EndsItsWorkWhenItsInputEnds) {
  const text::TempFiles files;
  auto rule = program("while read -r l; do " + kOk + "; done; echo saved; echo saved >&2; echo 1 > " +
                      files.path("saved"));
  totals_of(*rule, {"a"});
  rule.reset();
  EXPECT_EQ(number_in(files.path("saved")), 1);
}

TEST(RewardProgram, ItsChildrenEndWithIt) {
  const text::TempFiles files;
  // One child ignores SIGTERM, one is in the background of a shell that ends by itself.
  auto rule = program("(trap '' TERM; echo $(exec sh -c 'echo $PPID') > " + files.path("first") +
                      "; while :; do sleep 1; done) & sleep 1000 & echo $! > " + files.path("second") +
                      "; while read -r l; do " + kOk + "; done");
  totals_of(*rule, {"a"});
  const pid_t first = number_in(files.path("first")), second = number_in(files.path("second"));
  EXPECT_TRUE(runs(first) && runs(second));
  rule.reset();
  expect_end_of(first);
  expect_end_of(second);
}

TEST(RewardProgram, ABrokenPipeChangesNoSignalOfTheRun) {
  error_of<RunStopped>([] {
    const auto rule = program("exec <&-; sleep 100");
    totals_of(*rule, {std::string(300000, 'a')});
  });
  sigset_t pending, blocked;
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
  EXPECT_EQ(sigismember(&blocked, SIGPIPE), 0);
  struct sigaction action {};
  sigaction(SIGPIPE, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace mantissa::reward
