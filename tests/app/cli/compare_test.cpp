// mantissa compare: files, exit codes, and arguments.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/cli/run_program.h"

namespace mantissa::testing {
namespace {

TEST(CompareProgram, WritesAReportOfPolicies) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(6, "32-true"));
  const Result r = mantissa(folder,
                            "compare run.toml --precision '32-true, bf16-true rounding=stochastic' "
                            "--precision 16-mixed --seeds 2 --steps 5");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(has(r.out, "32-true is the reference")) << r.out;
  EXPECT_TRUE(has(r.err, "run 3 of 6, 16-mixed: step 5 of 5, loss ")) << r.err;
  EXPECT_TRUE(has(r.err, "run 6 of 6, 16-mixed, run.seed=2: step 5 of 5, loss ")) << r.err;
  const nlohmann::json json = nlohmann::json::parse(read_all(folder / "run-compare/compare.json"));
  ASSERT_EQ(json["runs"].size(), 3U);
  EXPECT_EQ(json["runs"][1]["name"], "bf16-true rounding=stochastic");
  EXPECT_EQ(json["runs"][2]["losses"].size(), 5U);
  ASSERT_EQ(json["reseeded"].size(), 3U);
  EXPECT_EQ(json["reseeded"][0]["seed"], 2);
  EXPECT_EQ(json["reseeded"][2]["run"], 2);
  EXPECT_EQ(json["runs"][2]["paired"]["seeds"], nlohmann::json::parse("[1, 2]"));
  EXPECT_TRUE(json["runs"][2]["paired"]["standard_error"].is_number());
  EXPECT_TRUE(json["noise"].is_number());
  EXPECT_EQ(read_all(folder / "run-compare/report.html").find("<!DOCTYPE html>"), 0U);
  EXPECT_EQ(read_all(folder / "run-compare/compare.csv").find("step,32-true,bf16-true rounding=stochastic,"),
            0U);
}

TEST(CompareProgram, VariesSettings) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(3, "32-true"));
  const Result r = mantissa(folder,
                            "compare run.toml --vary optimizer.lr=1e-3,1e-2 --vary "
                            "'optimizer.betas=[0.9,0.95],[0.8,0.9]' --seeds 1 --json --out c");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  const nlohmann::json json = nlohmann::json::parse(r.out);
  ASSERT_EQ(json["runs"].size(), 4U);
  EXPECT_EQ(json["runs"][3]["name"], "optimizer.lr=1e-2, optimizer.betas=[0.8,0.9]");
  EXPECT_TRUE(json["noise"].is_null());
  EXPECT_EQ(json["runs"][3]["outcome"], "uncertain");
  EXPECT_EQ(json, nlohmann::json::parse(read_all(folder / "c/compare.json")));
}

TEST(CompareProgram, TrainsWithThreeSeedsByDefault) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(2, "32-true"));
  const Result r =
      mantissa(folder, "compare run.toml --precision 32-true,bf16-mixed --set run.seed=5 --json");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(nlohmann::json::parse(r.out)["runs"][1]["paired"]["seeds"], nlohmann::json::parse("[5, 6, 7]"));
}

TEST(CompareProgram, SeedsAreNotSettingsToCompare) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(3, "32-true"));
  const Result alone = mantissa(folder, "compare run.toml --vary run.seed=1,2,3");
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_TRUE(has(alone.out, "These 3 runs of run.toml differ only in their seed")) << alone.out;
  EXPECT_TRUE(has(alone.out, "not a comparison")) << alone.out;
  const Result paired =
      mantissa(folder, "compare run.toml --vary run.seed=4,9 --precision 32-true,bf16-mixed --json");
  ASSERT_EQ(paired.code, 0) << paired.err;
  const nlohmann::json json = nlohmann::json::parse(paired.out);
  ASSERT_EQ(json["runs"].size(), 2U);
  EXPECT_EQ(json["runs"][1]["name"], "bf16-mixed");
  EXPECT_EQ(json["runs"][1]["paired"]["seeds"], nlohmann::json::parse("[4, 9]"));
}

TEST(CompareProgram, ReadsRuns) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  for (const char* other : {"--out s --set run.seed=7", "--out b --precision bf16-mixed"})
    ASSERT_EQ(mantissa(folder, std::string("train run.toml --quiet ") + other).code, 0);
  const Result r = mantissa(folder, "compare r/ b s --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const nlohmann::json json = nlohmann::json::parse(r.out);
  ASSERT_EQ(json["runs"].size(), 2U);
  EXPECT_EQ(json["runs"][1]["name"], "b (bf16-mixed)");
  EXPECT_EQ(json["reseeded"][0]["seed"], 7);
  EXPECT_GT(json["noise"], 0);
  EXPECT_EQ(json["runs"][1]["outcome"], "uncertain") << "one seed in common";
  EXPECT_TRUE(std::filesystem::exists(folder / "r-compare/compare.json"));
}

TEST(CompareProgram, RefusesWhatItCannotCompare) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(3, "32-true"));
  for (const char* arguments :
       {"", "run.toml", "run.toml --precision 32-true", "run.toml --precision 32-true,,bf16-mixed",
        "run.toml --precision 32-true,bf17-mixed", "run.toml --vary optimizer.lr",
        "run.toml --vary nothing.lr=1,2",
        "run.toml --precision 32-true,bf16-mixed --rule 'nowhere.*: compute=f32'", "run.toml r", "r", "r s",
        "r s --steps 3", "run.toml --precision 32-true,bf16-mixed --seeds -1", "run.toml --vary run.seed=1",
        "run.toml --vary run.seed=1,1", "run.toml --vary run.seed=1,x",
        "run.toml --precision 32-true,bf16-mixed --vary run.seed=1,2 --seeds 2"}) {
    const Result r = mantissa(folder, std::string("compare ") + arguments);
    EXPECT_EQ(r.code, 2) << arguments << "\n" << r.out << r.err;
    EXPECT_NE(r.err, "") << arguments;
  }
}

TEST(CompareProgram, NamesTheOptionWithAWrongKey) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(3, "32-true"));
  const Result vary = mantissa(folder, "compare run.toml --vary optimizer.lrr=1,2 --set optimizer.lr=1e-3");
  EXPECT_TRUE(has(vary.err, "--vary \"optimizer.lrr=1\": unknown key")) << vary.err;
  const Result set = mantissa(folder, "compare run.toml --vary optimizer.lr=1,2 --set optimizer.lrr=1");
  EXPECT_TRUE(has(set.err, "--set \"optimizer.lrr=1\": unknown key")) << set.err;
}

TEST(CompareProgram, StoppedBeforeARunEndedNamesTheOlderReport) {
  const TemporaryFolder folder;
  write(folder / "run.toml", tiny_config(2, "32-true"));
  ASSERT_EQ(mantissa(folder, "compare run.toml --precision 32-true,bf16-mixed --seeds 1").code, 0);
  const std::string before = read_all(folder / "run-compare/compare.json");
  write(folder / "run.toml", tiny_config(1000000, "32-true"));
  std::filesystem::remove(folder / "err");
  const pid_t child = start(folder, "compare run.toml --precision 32-true,bf16-mixed --seeds 1");
  while (!has(read_all(folder / "err"), "step 1 of")) {
    ASSERT_TRUE(runs(child)) << read_all(folder / "err");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  kill(child, SIGTERM);
  EXPECT_EQ(WEXITSTATUS(wait_for(child).status), 130);
  EXPECT_TRUE(
      has(read_all(folder / "err"), "no run had ended; run-compare/report.html has an earlier comparison"))
      << read_all(folder / "err");
  EXPECT_EQ(read_all(folder / "run-compare/compare.json"), before);
}

}  // namespace
}  // namespace mantissa::testing
