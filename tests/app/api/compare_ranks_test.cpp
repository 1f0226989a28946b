// Comparisons whose runs several ranks share: the figures of one process.
#include <gtest/gtest.h>

#include <regex>

#include <fstream>

#include "app/api/on_ranks.h"
#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using mantissa::testing::on_ranks;
using mantissa::testing::TemporaryFolder;

/// Returns a report without times and what the process takes.
std::string timeless(const CompareReport& report) {
  nlohmann::json j = nlohmann::json::parse(report.json);
  j.erase("seconds");
  for (const char* runs : {"runs", "reseeded"}) {
    for (nlohmann::json& run : j[runs]) {
      run.erase("tokens_per_second");
      run.erase("peak_bytes");
    }
  }
  // The sentence on which run is the fastest and which needs the least memory.
  const std::regex savings(
      " Of the runs that did at least as well as the reference, .*?of the reference\\)"
      "(, and .*?of the reference\\))?\\.");
  return std::regex_replace(j.dump() + report.csv + report.verdict, savings, "");
}

TEST(ComparisonOnRanks, HasTheFiguresOfOneProcess) {
  const TemporaryFolder folder;
  std::ofstream(folder / "run.toml") << mantissa::testing::tiny_config(6, "32-true");
  CompareOptions o;
  o.policies = {"32-true", "bf16-true", "fp8-hybrid"};
  o.vary = {"optimizer.lr=1e-2,1e38"};
  o.seeds = 2;
  o.hardware.threads = 1;
  const auto compared = [&](const Ranks& ranks) {
    CompareOptions own = o;
    own.ranks = ranks;
    return timeless(compare(folder / "run.toml", own));
  };
  const std::string alone = compared(Ranks());
  EXPECT_TRUE(mantissa::testing::has(alone, "\"stopped\":\"")) << "no run of this test stops";
  for (const int size : {1, 2, 3, 4, 9}) {
    for (const std::string& of_rank : on_ranks(size, compared)) EXPECT_EQ(of_rank, alone) << size;
  }
}

TEST(ComparisonOnRanks, AStopOfAnyRankLeavesTheRunsBefore) {
  const TemporaryFolder folder;
  std::ofstream(folder / "run.toml") << mantissa::testing::tiny_config(6, "32-true");
  std::vector<std::stop_source> stops(2);
  const std::vector<std::int64_t> runs = on_ranks(2, [&](const Ranks& ranks) {
    CompareOptions own;
    own.policies = {"32-true", "bf16-true"};
    own.hardware.threads = 1;
    own.ranks = ranks;
    const auto index = static_cast<std::size_t>(ranks.rank());
    const CompareReport report = compare(
        folder / "run.toml", own,
        [&](const CompareStep& step) {
          if (step.run == 4 && step.step == 2) stops[index].request_stop();
        },
        stops[index].get_token());
    EXPECT_TRUE(report.interrupted);
    return report.runs;
  });
  EXPECT_GE(runs[0], 2);
  EXPECT_LE(runs[0], 3) << "of six; the third may end beside the fourth";
  EXPECT_EQ(runs[1], runs[0]);
}

TEST(ComparisonOnRanks, AReferenceThatCannotStartIsTheErrorOfOneProcess) {
  const TemporaryFolder folder;
  std::ofstream(folder / "run.toml") << mantissa::testing::tiny_config(2, "32-true");
  const auto message = [&](const Ranks& ranks) -> std::string {
    CompareOptions own;
    own.policies = {"32-true", "bf16-true"};
    own.overrides = {"data.source=missing.txt"};
    own.ranks = ranks;
    try {
      compare(folder / "run.toml", own);
    } catch (const FileError& e) {
      return e.what();
    }
    return "";
  };
  const std::string alone = message(Ranks());
  EXPECT_TRUE(mantissa::testing::has(alone, "missing.txt")) << alone;
  for (const std::string& of_rank : on_ranks(3, message)) EXPECT_EQ(of_rank, alone);
}

}  // namespace
}  // namespace mantissa::api
