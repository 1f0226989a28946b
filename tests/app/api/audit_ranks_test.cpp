// Audits that several ranks share: the figures of one process.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "app/api/on_ranks.h"
#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using mantissa::testing::has;
using mantissa::testing::on_ranks;

/// Returns a report without times and the memory of this process.
std::string timeless(const AuditReport& report) {
  nlohmann::json j = nlohmann::json::parse(report.json);
  for (nlohmann::json& finding : j["findings"]) {
    finding["evidence"].erase("cure_memory");
    for (nlohmann::json& other : finding["alternatives"]) {
      other.erase("memory");
      other.erase("step_seconds");
    }
  }
  return j.dump(1) +
         std::regex_replace(report.html,
                            std::regex("<dt>(Time|Cure memory)</dt><dd>.*?</dd>|[0-9.]+ (MB|GB|s)\\b"), "");
}

/// Returns "" for equal texts, or what is around their first difference.
std::string difference(const std::string& a, const std::string& b) {
  if (a == b) return "";
  const auto at = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const std::size_t from = at < 200 ? 0 : at - 200;
  return a.substr(from, 400) + "\n--- is\n" + b.substr(from, 400);
}

/// Expects the report of one process on the first of 2, 3 and 4 ranks. Returns it.
std::string expect_same(const std::string& policy, const std::vector<std::string>& changes,
                        std::int64_t steps, bool try_cures, const std::vector<std::string>& rules = {}) {
  const Config config =
      Config::parse(mantissa::testing::tiny_config(8, policy), changes, {std::nullopt, rules, ""});
  const auto audited = [&](const Ranks& ranks) -> std::string {
    AuditOptions o;
    o.steps = steps;
    o.try_cures = try_cures;
    o.hardware.threads = 1;
    o.ranks = ranks;
    const AuditReport report = audit(config, o);
    return ranks.leads() ? timeless(report) : "";
  };
  const std::string alone = audited(Ranks());
  for (const int size : {1, 2, 3, 4})
    EXPECT_EQ(difference(on_ranks(size, audited)[0], alone), "") << policy << " on " << size;
  return alone;
}

TEST(AuditOnRanks, ObservesWhatOneProcessObserves) {
  for (const char* policy :
       {"32-true", "bf16-mixed reduce=bf16", "fp8-hybrid", "bf16-true rounding=stochastic"})
    expect_same(policy, {"batch.shards=2"}, 7, false);
}

TEST(AuditOnRanks, ObservesTheStepsBeforeAndAfterAChangeOfTheProgram) {
  const std::string changed =
      expect_same("bf16-mixed", {}, 7, false, {"model.layers.0.mlp: residual=e4m3 steps=2:5"});
  EXPECT_TRUE(has(changed, "e4m3"));
}

TEST(AuditOnRanks, TriesTheSameCures) {
  const std::string moving = expect_same("bf16-true", {"optimizer.lr=1e-6"}, 8, true);
  EXPECT_TRUE(has(moving, "\"tested\": true")) << "no cure works";
  expect_same("16-true", {"model.initializer_range=60"}, 4, true);
}

TEST(AuditOnRanks, EndsAtTheStepAtWhichTheRunStops) {
  const std::string stopped =
      expect_same("32-true", {"optimizer.lr=1e38", "schedule.warmup_steps=0"}, 6, true);
  EXPECT_TRUE(has(stopped, "\"stopped\": \"step ")) << stopped.substr(0, 400);
}

}  // namespace
}  // namespace mantissa::api
