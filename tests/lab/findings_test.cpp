// Findings of an audit: those of several parameters beside those of single values, and their rules.
#include "mantissa/lab/audit/findings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lab/small_run.h"

namespace mantissa::lab::findings_test {
namespace {

const std::string kQuery = "model.layers.0.self_attn.q_proj", kKey = "model.layers.0.self_attn.k_proj";

/// Adds a stored gradient in e4m3 of which `flushed` becomes zero, in its own format and in the health of the
/// parameter.
void add_gradient(Audit& audit, const std::string& scope, double flushed) {
  ValueSeries v{.scope = scope,
                .op = "matmul",
                .pass = "backward",
                .name = "grad.weight",
                .format = Scalar::e4m3,
                .rounded = Scalar::e4m3,
                .field = "grads",
                .elements = 1 << 16,
                .decided_by = {},
                .steps = {}};
  ValueStep step{.step = 1, .absmax = 1, .rms = 0.1};
  step.flushed = flushed;
  v.steps.push_back(step);
  audit.values.push_back(v);
  runtime::ParameterHealth health;
  health.name = scope + ".weight";
  health.elements = 1 << 16;
  health.grads_flushed = flushed;
  audit.weights.push_back({.name = health.name, .steps = {{1, health}}});
}

TEST(Findings, AreReportedOnceForValuesAndTheirParameters) {
  Audit audit;
  audit.points.push_back({.step = 1, .loss = 1, .grad_norm = 1, .lr = 1e-3});
  add_gradient(audit, kQuery, 0.9);
  add_gradient(audit, kKey, 0.5);
  add_gradient(audit, "model.norm", 0.01);
  const SmallRun s("32-true");
  const std::vector<Finding> found = find_problems(audit, s.config, 256);
  ASSERT_EQ(found.size(), 1U) << found[1].text;
  EXPECT_EQ(found[0].kind, "underflow");
  EXPECT_EQ(found[0].text.find("70 % of the gradients of the 2 matrices"), 0U) << found[0].text;
  EXPECT_EQ(found[0].evidence.at("share of " + kQuery), 0.9);
  EXPECT_EQ(found[0].evidence.at("share of " + kKey), 0.5);
  EXPECT_FALSE(found[0].evidence.contains("share of model.norm")) << "below the threshold";
  // A value without health is a finding of its own.
  audit.weights.erase(audit.weights.begin());
  EXPECT_EQ(find_problems(audit, s.config, 256).size(), 1U) << "a tied weight has another scope";
  audit.weights.push_back({.name = kQuery + ".weight", .steps = {}});
  EXPECT_EQ(find_problems(audit, s.config, 256).size(), 2U);
}

/// A token that has other experts than in f32 moves gradients by more than operands explain.
TEST(Findings, OfGradientsNameTheRoutersThatChoseOtherExperts) {
  Audit audit;
  audit.points.push_back({.step = 1, .loss = 1, .grad_norm = 1, .lr = 1e-3});
  audit.weights.push_back({.name = kQuery + ".weight", .steps = {}});
  audit.weights.back().gradient_steps.push_back(
      {.step = 1, .error = 0.9, .cosine = 0.5, .rms = 1, .expected = 0.01, .coarsest = "bf16"});
  const SmallRun s("32-true");
  const auto text = [&] {
    const std::vector<Finding> found = find_problems(audit, s.config, 256);
    return found.empty() ? std::string() : found.front().text;
  };
  EXPECT_NE(text().find("explain about"), std::string::npos) << text();
  EXPECT_EQ(text().find("routers"), std::string::npos) << text();
  audit.routers = {{"model.layers.0.mlp.gate", {{.step = 1, .chosen = 2, .tokens = 100, .changed = 3}}},
                   {"model.layers.1.mlp.gate", {{.step = 2, .chosen = 2, .tokens = 100, .changed = 50}}}};
  EXPECT_NE(text().find("routers chose other experts than in f32 for 3.0 % of the tokens of that step"),
            std::string::npos)
      << text();
}

TEST(Findings, TheirRuleHoldsAtTheirScope) {
  Cure cure{{"--overwrite", "--rule", "model.norm: params=f32", "--rule", "model.layers.*.mlp: params=f32"}};
  EXPECT_EQ(rule_at(cure, "model.norm"), "model.norm: params=f32");
  EXPECT_EQ(rule_at(cure, "model.layers.1.mlp.up_proj"), "model.layers.*.mlp: params=f32");
  EXPECT_EQ(rule_at(cure, "lm_head"), std::nullopt) << "it was not tried, and names other places";
  cure.tested = true;
  EXPECT_EQ(rule_at(cure, "lm_head"), "model.norm: params=f32");
  EXPECT_EQ(rule_at({{"--rule", R"({match = "*.mlp", op = "softmax", compute = "f32"})"}}, "model.mlp"),
            R"({match = "*.mlp", op = "softmax", compute = "f32"})");
  EXPECT_EQ(rule_at({{"--precision", "32-true"}}, "lm_head"), std::nullopt);
}

}  // namespace
}  // namespace mantissa::lab::findings_test
