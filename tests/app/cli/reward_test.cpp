// mantissa reward.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/cli/run_program.h"

namespace mantissa::testing {
namespace {

using nlohmann::json;

class RewardCommand : public ::testing::Test {
 protected:
  RewardCommand() {
    json right = {{"response", "Assistant: <think>Hm.</think> <answer>(1) Zoey is a knight</answer>"},
                  {"solution_text_format", "(1) Zoey is a knight"},
                  {"answer", "7"}};
    json wrong = right;
    wrong["response"] = "<|im_start|>assistant\n<think></think><answer>Zoey is a knave</answer>";
    json other = right;
    other["response"] = "7";
    write(folder / "r.jsonl", right.dump() + "\n" + wrong.dump() + "\n\n" + other.dump() + "\n");
  }
  void expect_refused(const std::string& arguments, const std::string& message, int code = 2) const {
    const Result r = mantissa(folder, "reward " + arguments);
    EXPECT_EQ(r.code, code) << arguments;
    EXPECT_EQ(r.out, "") << arguments;
    EXPECT_TRUE(has(r.err, message)) << arguments << "\n" << r.err;
  }
  TemporaryFolder folder;
};

TEST_F(RewardCommand, PrintsOneRewardARow) {
  EXPECT_EQ(mantissa(folder, "reward kk --responses r.jsonl").out, "3\n-0.5\n-3\n");
  EXPECT_EQ(mantissa(folder, "reward exact --responses r.jsonl").out, "0\n0\n1\n");
  EXPECT_EQ(mantissa(folder, "reward 'regex:^{answer}|knave' --responses r.jsonl").out, "0\n1\n1\n");
  EXPECT_EQ(
      mantissa(folder, "reward --responses=r.jsonl 'program:sed -u \"s/.*/{\\\"reward\\\": 0.25}/\"'").out,
      "0.25\n0.25\n0.25\n");
  write(folder / "none.jsonl", "");
  EXPECT_EQ(mantissa(folder, "reward kk --responses none.jsonl").out, "");
}

TEST_F(RewardCommand, PrintsTotalsAndPartsAsJson) {
  const Result r = mantissa(folder, "reward kk --responses r.jsonl --json");
  EXPECT_EQ(json::parse(r.out), (json{{"rewards", {3.0, -0.5, -3.0}},
                                      {"parts",
                                       {{{"format", 1.0}, {"answer", 2.0}},
                                        {{"format", 1.0}, {"answer", -1.5}},
                                        {{"format", -1.0}, {"answer", -2.0}}}}}));
  write(folder / "none.jsonl", "");
  EXPECT_EQ(mantissa(folder, "reward kk --json --responses none.jsonl").out,
            "{\"rewards\":[],\"parts\":[]}\n");
  const Result p = mantissa(
      folder,
      R"(reward "program:while read l; do echo '{\"reward\": 1, \"parts\": {\"b\": 2, \"a\": 3}}'; done" --json --responses r.jsonl)");
  EXPECT_TRUE(has(p.out, R"("parts":[{"b":2.0,"a":3.0})")) << p.out << p.err;
}

TEST_F(RewardCommand, FaultsAreOneMessage) {
  expect_refused("kk", "requires --responses FILE");
  expect_refused("--responses r.jsonl", "RULE");
  expect_refused("kkk --responses r.jsonl", "reward \"kkk\": expected kk, exact");
  expect_refused("'regex:(' --responses r.jsonl", "reward \"regex:(\": the pattern is invalid at byte 2");
  expect_refused("kk --responses no.jsonl", "no.jsonl");
  expect_refused("kk --responses r.jsonl --timeout 0", "--timeout 0: must be above 0");
  write(folder / "bad.jsonl", read_all(folder / "r.jsonl") + "{\"response\": 3}\n");
  expect_refused("kk --responses bad.jsonl", "bad.jsonl:5: \"response\" is of type number");
  write(folder / "cut.jsonl", read_all(folder / "r.jsonl") + "{\"response\": ");
  expect_refused("kk --responses cut.jsonl", "cut.jsonl:5: not JSON");
}

TEST_F(RewardCommand, AFaultyProgramStopsItForTheStatedReason) {
  expect_refused("'program:echo cannot load >&2; exit 3' --responses r.jsonl",
                 "exited with status 3 after 0 of 3 responses; its standard error ends with: cannot load", 1);
  expect_refused("'program:cat > /dev/null' --timeout 0.5 --responses r.jsonl", "in 0.5 s, its time limit",
                 1);
}

TEST_F(RewardCommand, AnInterruptEndsTheProgram) {
  const pid_t child = start(folder, "reward 'program:echo $$ > pid; cat > /dev/null' --responses r.jsonl");
  while (read_all(folder / "pid").find('\n') == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const auto program = static_cast<pid_t>(std::stol(read_all(folder / "pid")));
  kill(child, SIGINT);
  const int status = wait_for(child).status;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130) << status;
  EXPECT_TRUE(has(read_all(folder / "err"), "no reward is printed"));
  EXPECT_EQ(read_all(folder / "out"), "");
  EXPECT_NE(kill(program, 0), 0) << "it was waited for";
}

}  // namespace
}  // namespace mantissa::testing
