// What rules do to the formats of a plan, and how they are named.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "engine/plan/planned.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/engine/plan/rules.h"

namespace mantissa::plan::rules_test {
namespace {

TEST(Rules, LaterOnesWin) {
  const auto base = precision::Policy::parse("bf16-mixed").with_rule("*.mlp.*: compute=f32", "first");
  const Program one = plan_for(base);
  EXPECT_EQ(find_step(one, "model.layers.1.mlp.up_proj", "matmul")->compute, Scalar::f32);
  EXPECT_EQ(find_step(one, "model.layers.1.mlp.up_proj", "matmul")->decided_by, "first");
  EXPECT_EQ(find_step(one, "model.layers.1.self_attn.q_proj", "matmul")->compute, Scalar::bf16);
  const Program two = plan_for(base.with_rule("*.up_proj: compute=f16", "second"));
  EXPECT_EQ(find_step(two, "model.layers.1.mlp.up_proj", "matmul")->compute, Scalar::f16);
  EXPECT_EQ(find_step(two, "model.layers.1.mlp.up_proj", "matmul")->decided_by, "second");
  EXPECT_EQ(find_step(two, "model.layers.1.mlp.down_proj", "matmul")->decided_by, "first+bf16-mixed");
}

TEST(Rules, WithoutEffectAreReported) {
  const auto policy = precision::Policy::parse("bf16-mixed")
                          .with_rule("*.mlp.*: compute=f32", "first")
                          .with_rule("*.up_proj: compute=f32", "second")
                          .with_rule("lm_head: residual=bf16", "third")
                          .with_rule("*: operand=weight accumulate=f32", "fourth");
  const graph::Graph graph = model::build_log_prob(mantissa::testing::tiny_llama(false), 16, 16, true);
  EXPECT_EQ(idle_rules(lowering_of(graph), policy), (std::vector<std::size_t>{1, 2, 3}));
  EXPECT_EQ(rule_warnings(lowering_of(graph), policy, 4).front(),
            "second \"*.up_proj: compute=f32\" changes nothing: without it every format is the same");
}

TEST(Rules, OfStepsAreJudgedByAllPartsOfTheRun) {
  const graph::Graph graph = model::build_log_prob(mantissa::testing::tiny_llama(false), 16, 16, true);
  const auto warned = [&](std::initializer_list<const char*> rules) {
    auto policy = precision::Policy::parse("bf16-mixed");
    for (const char* rule : rules) policy = policy.with_rule(rule, "");
    return rule_warnings(lowering_of(graph), policy, 4);
  };
  using Warnings = std::vector<std::string>;
  // In step 1 the second rule takes precedence; the first applies before and after it.
  EXPECT_EQ(warned({"*.mlp: compute=f16", R"({match="*", steps="1:2", compute="f32"})"}), Warnings());
  EXPECT_EQ(
      warned({R"({match="*.mlp", steps="1:3", compute="f16"})", R"({match="*", steps="1:", compute="f32"})"}),
      Warnings{R"(rule 1 "{match = "*.mlp", steps = "1:3", compute = "f16"}" changes nothing: )"
               "without it every format is the same"});
  const Warnings misspelt = warned({R"({match="model.nrm", steps="1:2", compute="f32"})"});
  ASSERT_EQ(misspelt.size(), 1U);
  EXPECT_NE(misspelt[0].find("matches nothing: did you mean \"model.norm\"?"), std::string::npos)
      << misspelt[0];
  for (const int first : {4, 100}) {
    const std::string rule = "{match=\"*\", steps=\"" + std::to_string(first) + ":200\", compute=\"f32\"}";
    const Warnings late = warned({rule.c_str()});
    ASSERT_EQ(late.size(), 1U) << rule;
    const std::string why = "holds from step " + std::to_string(first) + " on, but the run has 4";
    EXPECT_NE(late[0].find(why), std::string::npos) << late[0];
  }
}

TEST(Rules, AreShownForTheFormatOfAnOpsResult) {
  const Program p = plan_for(precision::Policy::parse("bf16-mixed")
                                 .with_rule("*: residual=bf16", "first")
                                 .with_rule("*: accumulate=f16", "second"));
  EXPECT_EQ(find_step(p, "model.layers.1.mlp", "swiglu")->decided_by, "bf16-mixed");
  EXPECT_EQ(find_step(p, "model.layers.1.mlp.up_proj", "matmul")->decided_by, "second");
}

TEST(Rules, AreNamedByAnOpThatASumWasFoldedInto) {
  for (const char* rule : {"model.layers.1: residual=bf16", "*.layers.1.mlp: op=add residual=bf16"}) {
    const auto policy = precision::Policy::parse("bf16-mixed").with_rule(rule, "--rule 1");
    const std::vector<PlanRow> rows = plan_rows(plan_for(policy));
    EXPECT_EQ(find_row(rows, "model.layers.1.mlp.down_proj", "matmul").output, "bf16") << rule;
    EXPECT_EQ(find_row(rows, "model.layers.1.mlp.down_proj", "matmul").decided_by, "bf16-mixed+--rule 1")
        << rule;
    EXPECT_EQ(find_row(rows, "model.layers.0.mlp.down_proj", "matmul").decided_by, "bf16-mixed") << rule;
  }
}

TEST(Rules, OfSomeLayersAreShownWithTheirNumbers) {
  const auto shown = [](const char* rule) {
    const model::ModelConfig config = mantissa::testing::tiny_llama(false, 29, {{"num_hidden_layers", 4}});
    const auto policy = precision::Policy::parse("bf16-mixed").with_rule(rule, "--rule 1");
    const Program p = compile(model::build_log_prob(config, 16, 16, true), policy, {16, 16}, {});
    std::set<std::string> scopes;
    std::istringstream lines(plan_table(plan_rows(p), graph::Phase::forward));
    for (std::string line; std::getline(lines, line);) {
      if (line.find("_proj") != std::string::npos) scopes.insert(line.substr(0, line.find(' ')));
    }
    return scopes;
  };
  const std::string qkv = "model.layers.*.self_attn.{q,k,v}_proj", o = "model.layers.*.self_attn.o_proj",
                    mlp = "model.layers.*.mlp.{gate,up}_proj";
  using Scopes = std::set<std::string>;
  EXPECT_EQ(shown("*.down_proj: compute=f32"), (Scopes{qkv, o, mlp, "model.layers.*.mlp.down_proj"}));
  EXPECT_EQ(shown("model.layers.1.mlp.down_proj: compute=f32"),
            (Scopes{qkv, o, mlp, "model.layers.1.mlp.down_proj", "model.layers.{0,2-3}.mlp.down_proj"}));
}

TEST(Rules, ForOneOperandShowTheFormatsOfBothFactors) {
  for (const auto& [format, shown] :
       {std::pair{"mxfp4", "bf16·mxfp4"}, std::pair{"f16", "bf16·f16"}, std::pair{"bf16", "bf16"}}) {
    const auto policy = precision::Policy::parse("bf16-mixed")
                            .with_rule(std::string("*: op=matmul operand=weight compute=") + format, "rule");
    EXPECT_EQ(find_row(plan_rows(plan_for(policy)), "model.layers.1.mlp.up_proj", "matmul").multiplied,
              shown);
  }
}

TEST(Rules, ReachTheBackwardPassToo) {
  const Program p =
      plan_for(precision::Policy::parse("bf16-mixed").with_rule("lm_head: compute=f32", "rule"));
  for (const auto phase : {graph::Phase::forward, graph::Phase::backward}) {
    const Step* s = find_step(p, "lm_head", "log_prob", phase);
    ASSERT_NE(s, nullptr);
    EXPECT_EQ(s->compute, Scalar::f32);
    EXPECT_EQ(p.buffer(s->inputs[1].buffer).type, Scalar::f32);
  }
}

TEST(Rules, ThatMatchNothingAreReported) {
  const Program p = plan_for(precision::Policy::parse("bf16-mixed")
                                 .with_rule("lm_head: compute=f32", "--rule 1")
                                 .with_rule("model.nrm: compute=f32", "--rule 2"));
  const std::vector<std::string> warnings = rule_warnings(p);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("--rule 2"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("did you mean \"model.norm\""), std::string::npos) << warnings[0];
}

TEST(Rules, OfInsertedStepsAreAWarningWhetherOrNotThePlanHasSuchSteps) {
  for (const char* preset : {"32-true", "fp8-hybrid scaling=current"}) {
    const auto policy = precision::Policy::parse(preset).with_rule("*: op=quantize compute=bf16", "--rule 1");
    const Program p = plan_for(policy);
    EXPECT_NO_THROW(check_rules(p));
    EXPECT_TRUE(rule_warnings(p).empty());
    const std::vector<std::string> warnings = inserted_step_warnings(policy);
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_NE(
        warnings[0].find("\"quantize\" is not an op of the model. A plan inserts steps of this name where "
                         "an op needs them: each writes an operand in the format with scales"),
        std::string::npos)
        << warnings[0];
  }
  const auto misspelt = precision::Policy::parse("32-true").with_rule("*: op=quantze compute=bf16", "rule");
  EXPECT_TRUE(inserted_step_warnings(misspelt).empty());
  EXPECT_THROW(check_rules(plan_for(misspelt)), Error);
}

}  // namespace
}  // namespace mantissa::plan::rules_test
