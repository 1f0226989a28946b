// Tokens whose experts change with a format.
#include "mantissa/lab/audit/routers.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/comm/run_ranks.h"
#include "lab/small_run.h"
#include "mantissa/lab/audit/verdict.h"

namespace mantissa::lab {
namespace {

const std::vector<std::string> kExperts = {"model.model_type=mixtral", "model.num_local_experts=8",
                                           "model.num_experts_per_tok=2", "model.num_key_value_heads=2"};

TEST(AuditRouters, CountTokensWithAnotherSetOfExperts) {
  const runtime::Choices exact{2, {0, 1, 2, 5, 3, 4}}, seen{2, {0, 1, 1, 5, 3, 4}};
  const auto counts = compare({{"gate", seen}, {"other", seen}}, {{"gate", exact}});
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts.at("other").tokens, 0) << "there are none to compare with";
  EXPECT_EQ(counts.at("gate").tokens, 3);
  EXPECT_EQ(counts.at("gate").changed, 1);
  const runtime::Choices repeated{2, {0, 1, 2, 5, 3, 4, 0, 1, 2, 5, 3, 4}};
  EXPECT_EQ(compare({{"gate", repeated}}, {{"gate", exact}}).at("gate").tokens, 0) << "a pass that ran again";
}

TEST(AuditRouters, SayWhatWasNotCompared) {
  Audit audit = SmallRun("32-true", {"model.norm: compute=bf16"}, kExperts).audit(1);
  audit.routers.front().steps.push_back({.step = 2, .chosen = 2});
  const std::string verdict = verdict_of(audit);
  EXPECT_NE(verdict.find("Every token that was compared had"), std::string::npos) << verdict;
  EXPECT_NE(verdict.find("The experts of 1 step of a router were not compared"), std::string::npos)
      << verdict;
}

/// The second router alone is in a narrow format.
TEST(AuditRouters, FindTheRouterWhoseFormatMovesTokens) {
  const Audit audit =
      SmallRun("32-true", {"model.layers.1.block_sparse_moe.gate: compute=e4m3"}, kExperts).audit(2);
  ASSERT_EQ(audit.routers.size(), 2U) << audit.verdict;
  const RouterSeries &first = audit.routers[0], &second = audit.routers[1];
  EXPECT_EQ(first.scope, "model.layers.0.block_sparse_moe.gate");
  EXPECT_EQ(second.scope, "model.layers.1.block_sparse_moe.gate");
  for (const RouterStep& s : first.steps) EXPECT_EQ(s.changed, 0);
  ASSERT_EQ(second.steps.size(), 2U);
  EXPECT_GT(second.steps[0].changed, 0);
  EXPECT_LT(second.steps[0].share(), 0.5);
  EXPECT_EQ(second.steps[0].tokens, first.steps[0].tokens);
  EXPECT_EQ(second.steps[0].chosen, 2);
  EXPECT_NE(audit.verdict.find("other experts than in f32"), std::string::npos) << audit.verdict;
  EXPECT_NE(audit.verdict.find(second.scope), std::string::npos) << audit.verdict;
  const auto json = nlohmann::json::parse(to_json(audit));
  EXPECT_EQ(json.at("routers").at(1).at("steps").at(0).at("changed"), second.steps[0].changed);
  EXPECT_NE(to_html(audit).find("<section id=\"routers\">"), std::string::npos);
}

/// Ranks observe different steps.
TEST(AuditRouters, OfSeveralRanksAreThoseOfOne) {
  const SmallRun s("bf16-mixed", {"*.gate: compute=e4m3"}, kExperts);
  const std::vector<RouterSeries> alone = s.audit(3).routers;
  std::vector<RouterSeries> together;
  mantissa::testing::run_ranks(2, [&](comm::Communicator& ranks) {
    const Audit audit = audit_run({s.config, s.model, *s.task, *s.device},
                                  {.steps = 3, .tries_cures = false, .ranks = &ranks});
    if (ranks.leads()) together = audit.routers;
  });
  ASSERT_EQ(together.size(), alone.size());
  for (std::size_t r = 0; r < alone.size(); ++r) {
    EXPECT_EQ(together[r].scope, alone[r].scope);
    ASSERT_EQ(together[r].steps.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(together[r].steps[i].step, alone[r].steps[i].step);
      EXPECT_EQ(together[r].steps[i].changed, alone[r].steps[i].changed);
    }
  }
}

TEST(AuditRouters, SayThatNoTokenMovesIfTheStepIsInF32) {
  const Audit audit = SmallRun("32-true", {"model.norm: compute=bf16"}, kExperts).audit(1);
  EXPECT_NE(audit.verdict.find("Every token had the experts"), std::string::npos) << audit.verdict;
  const Audit dense = SmallRun("bf16-mixed").audit(1);
  EXPECT_TRUE(dense.routers.empty());
  EXPECT_EQ(to_html(dense).find("id=\"routers\""), std::string::npos);
}

}  // namespace
}  // namespace mantissa::lab
