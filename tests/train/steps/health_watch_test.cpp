// Findings of a whole run: only losses above the limits, at learning rates near the highest.
#include "mantissa/train/steps/health_watch.h"

#include <gtest/gtest.h>

namespace mantissa::train {
namespace {

StepReport step(double lr, std::vector<runtime::ParameterHealth> health) {
  StepReport r;
  r.lr = lr;
  r.health = std::move(health);
  return r;
}

runtime::ParameterHealth matrix(std::string name, double lost) {
  runtime::ParameterHealth p;
  p.name = std::move(name);
  p.elements = 100;
  p.master = Scalar::bf16;
  p.updates_lost = lost;
  p.weight_absmax = 0.5;
  return p;
}

precision::Policy policy(const char* text) {
  return precision::Policy::parse(text);
}

TEST(HealthWatch, JoinsLayersAndNamesTheSpacing) {
  HealthWatch watch(policy("bf16-true"));
  watch.see(step(1e-5, {matrix("model.layers.0.mlp.up_proj.weight", 0.9),
                        matrix("model.layers.1.mlp.up_proj.weight", 0.7), matrix("lm_head.weight", 0.1)}));
  const std::vector<HealthFinding> found = watch.findings();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(
      found[0].warning.text,
      "80 % of the updates of the 2 matrices model.layers.*.mlp.up_proj.weight were lost: numbers in bf16 "
      "near 0.5 are 0.0039 apart, and the learning rate is 1e-05");
  EXPECT_EQ(found[0].kind, "rounded_away");
  EXPECT_EQ(found[0].worst, "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(found[0].share, 0.8);
  ASSERT_EQ(found[0].warning.cures.size(), 3U);
  EXPECT_EQ(found[0].warning.cures[0].arguments,
            (std::vector<std::string>{"--overwrite", "--rule", "model.layers.*.mlp.up_proj: params=f32"}));
  EXPECT_EQ(found[0].warning.cures[1].arguments,
            (std::vector<std::string>{"--overwrite", "--set", "precision.rounding=stochastic"}));
  EXPECT_EQ(found[0].warning.cures[2].arguments,
            (std::vector<std::string>{"--overwrite", "--set", "precision.kahan=true"}));
}

/// The spacing alone does not explain updates that are lost at a rate far above it.
TEST(HealthWatch, NamesTheGradientsIfTheRateIsAboveTheSpacing) {
  HealthWatch watch(policy("32-true"));
  runtime::ParameterHealth gain = matrix("model.norm.weight", 0.9);
  gain.vector = true;
  gain.master = Scalar::f32;
  gain.weight_absmax = 1.5;
  gain.grad_absmax = 3e-13;
  watch.see(step(1e-5, {gain}));
  const std::vector<HealthFinding> found = watch.findings();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(
      found[0].warning.text,
      "90 % of the updates of the vector model.norm.weight were lost: numbers in f32 near 1.5 are "
      "1.2e-07 apart, and updates are smaller although the learning rate is 1e-05: the largest gradient "
      "is 3e-13");
}

/// A rule may give one layer another format.
TEST(HealthWatch, NamesTheLayerIfItIsTheOnlyOne) {
  HealthWatch watch(policy("bf16-true"));
  runtime::ParameterHealth other = matrix("model.layers.0.mlp.up_proj.weight", 0);
  other.master = Scalar::f32;
  watch.see(step(1e-5, {other, matrix("model.layers.1.mlp.up_proj.weight", 0.9),
                        matrix("model.layers.1.mlp.down_proj.weight", 0.9)}));
  const std::vector<HealthFinding> found = watch.findings();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(
      found[0].warning.text.find("90 % of the updates of the 2 matrices model.layers.1.mlp.up_proj.weight, "
                                 "model.layers.1.mlp.down_proj.weight were lost"),
      0U)
      << found[0].warning.text;
  EXPECT_EQ(found[0].warning.cures[0].arguments,
            (std::vector<std::string>{"--overwrite", "--rule", "model.layers.1.mlp.up_proj: params=f32",
                                      "--rule", "model.layers.1.mlp.down_proj: params=f32"}));
}

/// A parameter with a name of its own has a rule of its own.
TEST(HealthWatch, NamesTheParameterIfItsModuleHasOthers) {
  HealthWatch watch(policy("bf16-true"));
  runtime::ParameterHealth other = matrix("model.layers.0.attn.x_w", 0);
  other.master = Scalar::f32;
  watch.see(step(1e-5, {other, matrix("model.layers.0.attn.k_k", 0.9), matrix("model.norm.weight", 0.9)}));
  const std::vector<HealthFinding> found = watch.findings();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].warning.cures[0].arguments,
            (std::vector<std::string>{"--overwrite", "--rule", "model.layers.0.attn.k_k: params=f32",
                                      "--rule", "model.norm: params=f32"}));
}

/// Layers in one format lose about the same share, so the limit would otherwise choose among them.
TEST(HealthWatch, CuresAllLayersInTheFormat) {
  HealthWatch watch(policy("bf16-true"));
  watch.see(step(1e-5, {matrix("model.layers.0.mlp.up_proj.weight", 0.49),
                        matrix("model.layers.1.mlp.up_proj.weight", 0.51)}));
  const std::vector<HealthFinding> found = watch.findings();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].warning.text.find("the matrix model.layers.1.mlp.up_proj.weight"), std::string::npos);
  EXPECT_EQ(found[0].warning.cures[0].arguments,
            (std::vector<std::string>{"--overwrite", "--rule", "model.layers.*.mlp.up_proj: params=f32"}));
}

TEST(HealthWatch, CountsOnlyUpdatesThatAreNotZero) {
  HealthWatch watch(policy("bf16-true"));
  runtime::ParameterHealth rare = matrix("model.embed_tokens.weight", 0.3);
  rare.updates_zero = 0.6;
  watch.see(step(1e-5, {rare}));
  ASSERT_EQ(watch.findings().size(), 1U);
  EXPECT_EQ(
      watch.findings()[0].warning.text.find("75 % of the updates of the matrix model.embed_tokens.weight"),
      0U);
}

TEST(HealthWatch, IgnoresTheWarmUpAndTheEndOfTheSchedule) {
  HealthWatch watch(policy("bf16-true"));
  watch.see(step(1e-6, {matrix("a.weight", 1)}));
  EXPECT_EQ(watch.findings().size(), 1U);
  watch.see(step(1e-3, {matrix("a.weight", 0.2)}));
  watch.see(step(1e-4, {matrix("a.weight", 0.9)}));
  EXPECT_TRUE(watch.findings().empty());
}

TEST(HealthWatch, IsSilentWhereLostUpdatesAreKept) {
  for (const char* text : {"bf16-true rounding=stochastic", "bf16-true kahan=true"}) {
    HealthWatch watch(policy(text));
    watch.see(step(1e-6, {matrix("a.weight", 1)}));
    EXPECT_TRUE(watch.findings().empty()) << text;
  }
}

TEST(HealthWatch, ReportsSumsOverShardsThatBecomeZeroUnlessTheirMeanStays) {
  for (const auto& [text, findings] : {std::pair("reduce=e4m3", 1U),
                                       {"reduce=e4m3 reduce_rounding=toward-zero", 1U},
                                       {"reduce=e4m3 reduce_rounding=stochastic", 0U}}) {
    HealthWatch watch(policy(text));
    runtime::ParameterHealth p = matrix("a.weight", 0);
    p.reduce_flushed = 0.9;
    p.reduce_saturated = 0;
    watch.see(step(1e-3, {p}));
    EXPECT_EQ(watch.findings().size(), findings) << text;
  }
}

TEST(HealthWatch, RaisesTheRateWhereEvenF32LosesUpdates) {
  HealthWatch watch(policy("32-true"));
  runtime::ParameterHealth p = matrix("a.weight", 1);
  p.master = Scalar::f32;
  watch.see(step(1e-12, {p}));
  ASSERT_EQ(watch.findings().size(), 1U);
  EXPECT_EQ(watch.findings()[0].warning.cures[0].arguments,
            (std::vector<std::string>{"--overwrite", "--set", "optimizer.lr=1e-10"}));
}

TEST(HealthWatch, JudgesEachStageAtItsOwnLearningRate) {
  HealthWatch watch(policy("bf16-true"));
  const auto see = [&](std::int64_t n, double lr, double lost, PartNumber part) {
    StepReport r = step(lr, {matrix("a.weight", lost)});
    r.step = n;
    watch.see(r, part);
  };
  see(1, 1e-2, 0.1, {0, 0});
  see(2, 1e-5, 1, {0, 1});  // the end of the first stage's schedule, under other rules
  EXPECT_TRUE(watch.findings().empty());
  see(3, 1e-5, 0.9, {1, 2});
  see(4, 1e-5, 0.9, {1, 2});
  const std::vector<HealthFinding> found = watch.findings();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].share, 0.9);
  EXPECT_EQ(found[0].lr, 1e-5);
  EXPECT_EQ(found[0].first, 3);
  EXPECT_TRUE(found[0].warning.text.ends_with("the learning rate is 1e-05; in steps 3 to 4"))
      << found[0].warning.text;
}

TEST(HealthWatch, FindsGradientsAndCopiesOutOfRange) {
  HealthWatch watch(policy("16-true"));
  runtime::ParameterHealth a = matrix("a.weight", 0), b = matrix("b.weight", 0), c = matrix("c.weight", 0);
  a.grads_flushed = 0.4;
  b.grads_saturated = 0.02;
  c.saturated = 0.5;
  watch.see(step(1e-3, {a, b, c}));
  watch.see(step(1e-3, {matrix("a.weight", 0), b, c}));
  const std::vector<HealthFinding> found = watch.findings();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].warning.text.find("20 % of the gradients of the matrix a.weight became zero"), 0U)
      << found[0].warning.text;
  EXPECT_EQ(found[1].warning.text.find("2.0 % of the gradients of the matrix b.weight exceeded"), 0U)
      << found[1].warning.text;
  EXPECT_EQ(found[2].warning.text.find("50 % of the matrix c.weight exceed the range"), 0U)
      << found[2].warning.text;
}

/// Scales that are powers of two saturate some elements of every matrix.
TEST(HealthWatch, FindsCopiesInBlocksThatLoseTheirWeights) {
  HealthWatch watch(policy("bf16-mixed compute=nvfp4"));
  runtime::ParameterHealth a = matrix("a.weight", 0), b = matrix("b.weight", 0), c = matrix("c.weight", 0);
  a.saturated = 0.01, a.vanished = 0.1;
  b.saturated = 0.1, b.vanished = 0;
  c.saturated = 0, c.vanished = 0.9, c.weight_absmax = 500, c.scale = 0.2;
  watch.see(step(1e-3, {a, b, c}));
  const std::vector<HealthFinding> found = watch.findings();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].warning.text.find("10 % of the matrix b.weight exceed the range"), 0U)
      << found[0].warning.text;
  EXPECT_EQ(found[1].kind, "underflow");
  EXPECT_EQ(found[1].pass, "forward");
  EXPECT_EQ(found[1].warning.text.find("90 % of the matrix c.weight become zero"), 0U)
      << found[1].warning.text;
  EXPECT_NE(found[1].warning.text.find("the largest weight is 5e+02"), std::string::npos)
      << found[1].warning.text;
}

TEST(HealthWatch, CountsNoLossUnderAScaleWithoutAHistory) {
  HealthWatch watch(policy("bf16-mixed compute=nvfp4"));
  runtime::ParameterHealth a = matrix("a.weight", 0);
  a.saturated = 0, a.vanished = 1, a.scale = 1;
  watch.see(step(1e-3, {a}));
  EXPECT_TRUE(watch.findings().empty());
}

TEST(Patterns, ReplaceNumbersBetweenDots) {
  EXPECT_EQ(patterns_of({"h.0.w1", "h.1.w1", "h.10.w1", "wte"}), "h.*.w1, wte");
  EXPECT_EQ(patterns_of({"a", "b", "c", "d", "e", "f"}), "a, b, c, d and 2 more");
}

}  // namespace
}  // namespace mantissa::train
