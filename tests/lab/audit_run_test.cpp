// Audits of runs with planted faults: each is among the first findings with its place, a healthy run has
// none, the cure works, and observing changes no bit.
#include "mantissa/lab/audit/run.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lab/small_run.h"

namespace mantissa::lab {
namespace {

TEST(Audit, IsSilentOnAHealthyRun) {
  for (const std::string policy :
       {"32-true", "bf16-mixed", "16-mixed", "bf16-mixed compute=mxfp8", "bf16-mixed compute=mxfp4",
        "bf16-mixed compute=nvfp4", "fp8-hybrid scaling=current", "bf16-true rounding=stochastic",
        "bf16-true kahan=true"}) {
    const Audit audit = SmallRun(policy).audit();
    EXPECT_TRUE(audit.findings.empty()) << policy << "\n" << list(audit);
    EXPECT_EQ(audit.steps, 8);
    EXPECT_EQ(audit.points.size(), 8U);
    EXPECT_EQ(audit.observed.size(), 8U);
    EXPECT_NE(audit.verdict.find("showed no problem"), std::string::npos);
  }
}

TEST(Audit, ChangesNoBit) {
  for (const std::string policy :
       {"bf16-mixed", "16-mixed", "fp8-hybrid", "fp8-hybrid scaling=current", "bf16-true"}) {
    const SmallRun s(policy);
    train::Trainer plain(s.config, s.model, s.task->again(s.config), *s.device);
    std::vector<double> losses;
    for (int i = 0; i < 5; ++i) losses.push_back(plain.advance()->loss);
    const Audit audit = s.audit(5);
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_EQ(audit.points[i].loss, losses[i]) << policy << i;
  }
}

TEST(Trainer, MeasuresTheMachineWhenItsRatesAreAskedFor) {
  const SmallRun s("bf16-mixed");
  train::Trainer trainer(s.config, s.model, s.task->again(s.config), *s.device);
  EXPECT_EQ(trainer.advance()->peak_share, 0);
  EXPECT_GT(trainer.machine().flops_per_second, 0);
  EXPECT_GT(trainer.advance()->peak_share, 0);
}

TEST(Audit, ObservesSomeStepsOfALongRun) {
  const SmallRun s("bf16-mixed");
  const Audit audit = audit_run({s.config, s.model, *s.task, *s.device}, {.steps = 30, .observed = 4});
  EXPECT_EQ(audit.points.size(), 30U);
  EXPECT_LE(audit.observed.size(), 4U);
  EXPECT_EQ(audit.observed.front(), 1);
  EXPECT_EQ(audit.observed.back(), 30);
}

/// The figures of a value are those of its stored numbers and of the numbers before rounding.
TEST(Audit, HasTheErrorsOfTheFormats) {
  const Audit audit = SmallRun("bf16-mixed").audit(2);
  bool seen = false;
  for (const ValueSeries& v : audit.values) {
    for (const ValueStep& s : v.steps) {
      if (!s.max_ulp) continue;
      EXPECT_LE(*s.max_ulp, 0.5) << v.scope << v.op << v.name << ": rounding to nearest";
      EXPECT_LE(*s.error_rms, 0x1p-8) << v.scope << v.op;
      seen = true;
    }
    if (v.format != Scalar::f32) {
      EXPECT_TRUE(v.steps[0].error_rms) << v.scope << v.op << v.pass << v.name;
    }
  }
  EXPECT_TRUE(seen);
}

TEST(Audit, SeesWeightsThatVanishInTheFormatInWhichProductsReadThem) {
  // Half of the least e4m3 is 2^-10.
  const Audit audit = SmallRun("fp8-hybrid scaling=none", {}, {"model.initializer_range=5e-4"}).audit();
  const auto found = std::ranges::find_if(audit.findings, [](const Finding& f) {
    return f.kind == "underflow" && f.pass == "forward" && f.text.find("(weight)") != std::string::npos;
  });
  ASSERT_NE(found, audit.findings.end()) << list(audit);
  EXPECT_GT(found->share, 0.5);
  ASSERT_TRUE(found->rule);
  EXPECT_NE(found->rule->find("compute=f32"), std::string::npos);
}

/// Half of the least scale of a block is 2^-10, and the largest element is 6.
TEST(Audit, SeesWeightsThatVanishInBlocks) {
  const SmallRun s("bf16-mixed compute=nvfp4 scaling=none", {}, {"model.initializer_range=1e-3"});
  const Audit audit = s.audit(8, true);
  const auto found = std::ranges::find_if(audit.findings, [](const Finding& f) {
    return f.kind == "underflow" && f.pass == "forward" &&
           f.text.find("(weight) becomes zero: larger") != std::string::npos;
  });
  ASSERT_NE(found, audit.findings.end()) << list(audit);
  EXPECT_EQ(found->op, "matmul");
  EXPECT_GT(found->share, 0.5);
  ASSERT_TRUE(found->cure) << list(audit);
  EXPECT_TRUE(found->cure->tested) << list(audit);
}

/// Current scaling puts the largest magnitude at that of the format, or a rounding of f32 beyond it.
TEST(Audit, CountsNoSaturationUnderAScaleThatFits) {
  for (const std::string policy : {"fp8-hybrid scaling=current", "fp8-hybrid scaling=none"}) {
    const Audit audit = SmallRun(policy).audit();
    int copies = 0;
    for (const ParameterSeries& p : audit.weights) {
      for (const auto& [step, health] : p.steps) {
        if (!health.saturated) continue;
        ++copies;
        EXPECT_EQ(*health.saturated, 0) << policy << " " << p.name << " in step " << step;
        EXPECT_EQ(health.scale.has_value(), policy == "fp8-hybrid scaling=current");
      }
    }
    EXPECT_GE(copies, 8 * 14) << policy << ": 7 matrices in each of 2 layers, 8 steps";
    for (const ValueSeries& v : audit.values) {
      for (const ValueStep& s : v.steps) EXPECT_EQ(s.overflowed.value_or(0), 0) << v.scope << v.name;
    }
  }
}

struct Fault {
  const char* what;
  std::string policy;
  std::vector<std::string> rules, changes;
  std::string kind, scope, op, pass;
};

class Faults : public ::testing::TestWithParam<Fault> {};

TEST_P(Faults, AreFirstWithACureThatWorks) {
  const Fault& fault = GetParam();
  const SmallRun s(fault.policy, fault.rules, fault.changes);
  const Audit audit = s.audit(8, true);
  ASSERT_FALSE(audit.findings.empty());
  const Finding& f = audit.findings.front();
  EXPECT_EQ(f.kind, fault.kind) << list(audit);
  EXPECT_NE(f.scope.find(fault.scope), std::string::npos) << list(audit);
  EXPECT_EQ(f.op, fault.op) << list(audit);
  EXPECT_EQ(f.pass, fault.pass) << list(audit);
  EXPECT_GE(f.step, 1);
  ASSERT_TRUE(f.cure) << list(audit);
  EXPECT_TRUE(f.cure->tested) << list(audit);
  const Audit cured = s.under(*f.cure, 8);
  EXPECT_EQ(std::ranges::find(cured.findings, f.kind, &Finding::kind), cured.findings.end()) << list(cured);
}

INSTANTIATE_TEST_SUITE_P(
    Planted, Faults,
    ::testing::Values(Fault{"a learning rate at which bf16 weights stop moving",
                            "bf16-true",
                            {},
                            {"optimizer.lr=1e-6"},
                            "rounded_away",
                            "model",
                            "update",
                            "update"},
                      Fault{"a softmax in f16",
                            "32-true",
                            {R"({match = "model.layers.1.*", op = "softmax", compute = "f16"})"},
                            {},
                            "error",
                            "model.layers.1.self_attn",
                            "softmax",
                            "backward"},
                      Fault{"gradients below f16",
                            "16-mixed loss_scale=none",
                            {},
                            {"model.initializer_range=0.001"},
                            "underflow",
                            "mlp.gate_proj",
                            "matmul",
                            "backward"},
                      Fault{"a scale that is too low",
                            "16-mixed loss_scale=0.0001",
                            {},
                            {},
                            "underflow",
                            "lm_head",
                            "log_prob",
                            "backward"},
                      Fault{"e4m3 without scales",
                            "bf16-mixed",
                            {"model.layers.1.mlp.down_proj: compute=e4m3 scaling=none operand=gradient"},
                            {},
                            "underflow",
                            "model.layers.1.mlp.down_proj",
                            "quantize",
                            "backward"},
                      Fault{"activations rounded toward zero",
                            "bf16-mixed",
                            {"model.layers.0.mlp.*: rounding=toward_zero"},
                            {},
                            "bias",
                            "model.layers.0.mlp",
                            "cast",
                            "forward"}),
    [](const auto& fault) {
      std::string name = fault.param.what;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name;
    });

TEST(Audit, DistinguishesALearningRateFromAPrecision) {
  const Audit audit =
      SmallRun("bf16-mixed", {}, {"optimizer.lr=1e7", "optimizer.max_grad_norm=0"}).audit(8, true);
  ASSERT_FALSE(audit.findings.empty());
  EXPECT_EQ(audit.findings[0].kind, "learning_rate") << list(audit);
  EXPECT_NE(audit.findings[0].text.find("so the precision is not the cause"), std::string::npos)
      << list(audit);
  EXPECT_FALSE(audit.findings[0].rule);
  ASSERT_TRUE(audit.findings[0].cure);
  EXPECT_EQ(audit.findings[0].cure->arguments.at(0), "--set");
}

/// A cure for one layer of a finding that groups several would move it to the next.
TEST(Audit, CuresAllLayersOfAFinding) {
  const SmallRun s("32-true", {"*: op=softmax compute=f16"});
  const Audit audit = s.audit(4, true);
  ASSERT_FALSE(audit.findings.empty());
  EXPECT_EQ(audit.findings[0].kind, "error") << list(audit);
  ASSERT_TRUE(audit.findings[0].cure) << list(audit);
  const Audit cured = s.under(*audit.findings[0].cure, 4);
  EXPECT_TRUE(cured.findings.empty()) << list(cured);
}

TEST(Audit, OffersScalesFirstWhereTheyAreMissing) {
  const SmallRun s("fp8-hybrid scaling=none");
  const Audit audit = s.audit(6, true);
  ASSERT_FALSE(audit.findings.empty());
  const Finding& f = audit.findings[0];
  ASSERT_TRUE(f.cure) << list(audit);
  // Delayed scales are 1 in the first step, in which this run would lose the gradients of q_proj.
  EXPECT_EQ(f.cure->arguments, (std::vector<std::string>{"--rule", "*: scaling=current"})) << list(audit);
}

/// Delayed scales are 1 in the first step. With larger weights and gradients it loses only the smallest
/// values.
TEST(Audit, ReportsTheFirstStepOfDelayedScalesIfItsGradientsAreLost) {
  for (const std::int64_t steps : {1, 2, 3}) {
    const Audit lost = SmallRun("fp8-hybrid").audit(steps);
    ASSERT_FALSE(lost.findings.empty()) << steps;
    EXPECT_NE(lost.findings[0].text.find("in step 1 alone, in which its scale has no history and is 1"),
              std::string::npos)
        << list(lost);
    const std::vector<std::string> large = {"model.initializer_range=0.1"};
    const Audit kept = SmallRun("fp8-hybrid", {}, large).audit(steps);
    EXPECT_TRUE(kept.findings.empty()) << steps << "\n" << list(kept);
  }
}

TEST(Audit, TestsALearningRateOverAllSteps) {
  const SmallRun s("32-true", {}, {"optimizer.lr=1e3", "optimizer.max_grad_norm=0"});
  const Audit audit = s.audit(20, true);
  ASSERT_FALSE(audit.findings.empty());
  EXPECT_EQ(audit.findings[0].kind, "learning_rate") << list(audit);
  ASSERT_TRUE(audit.findings[0].cure) << list(audit);
  const Audit cured = s.under(*audit.findings[0].cure, 20);
  EXPECT_TRUE(cured.stopped.empty() && cured.findings.empty()) << list(cured);
}

TEST(Audit, BlamesTheLearningRateAndNotF16) {
  const Audit audit = SmallRun("16-mixed", {}, {"optimizer.lr=50"}).audit(20, true);
  ASSERT_FALSE(audit.findings.empty());
  EXPECT_EQ(audit.findings[0].kind, "learning_rate") << list(audit);
  ASSERT_TRUE(audit.findings[0].cure) << list(audit);
  EXPECT_EQ(audit.findings[0].cure->arguments.at(1).find("optimizer.lr="), 0U);
}

/// The first trial always runs, here that of f32. A tenth of the rate is offered, and marked as not tried.
TEST(Audit, BlamesTheLearningRateEvenIfThereIsNoTimeToTryALowerOne) {
  const SmallRun s("16-mixed", {}, {"optimizer.lr=50"});
  const Audit audit =
      audit_run({s.config, s.model, *s.task, *s.device}, {.steps = 20, .seconds = 0, .trial_seconds = 0});
  ASSERT_FALSE(audit.findings.empty());
  EXPECT_EQ(audit.findings[0].kind, "learning_rate") << list(audit);
  ASSERT_TRUE(audit.findings[0].cure) << list(audit);
  EXPECT_EQ(audit.findings[0].cure->arguments, (std::vector<std::string>{"--set", "optimizer.lr=5"}));
  EXPECT_FALSE(audit.findings[0].cure->tested);
}

TEST(Audit, NamesTheFirstStepOfAnOverflowThatStopsTheRunLater) {
  const SmallRun s("16-mixed", {}, {"model.initializer_range=60"});
  const Audit audit = s.audit(8);
  ASSERT_FALSE(audit.stopped.empty()) << list(audit);
  ASSERT_FALSE(audit.findings.empty());
  EXPECT_EQ(audit.findings[0].kind, "nonfinite") << list(audit);
  EXPECT_EQ(audit.findings[0].step, 1);
  ASSERT_TRUE(audit.first_non_finite);
  EXPECT_EQ(audit.first_non_finite->step, 1);
}

TEST(Audit, IsSilentWhileAHighLossScaleLooksForItsValue) {
  const SmallRun s("16-mixed", {},
                   {"precision.loss_scale.initial_scale_power=24", "precision.loss_scale.hysteresis=1"});
  const Audit audit = s.audit(20);
  EXPECT_TRUE(audit.findings.empty()) << list(audit);
  EXPECT_NE(audit.verdict.find("while the loss scale looked for its value"), std::string::npos)
      << audit.verdict;
}

/// Returns an audit of applied and skipped steps with the loss scales of `scales`.
Audit with_scales(const std::vector<double>& scales, const std::vector<bool>& skipped,
                  std::int64_t first = 1) {
  Audit audit;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    audit.points.push_back({.step = first + static_cast<std::int64_t>(i),
                            .loss = 1,
                            .grad_norm = 1,
                            .loss_scale = scales[i],
                            .skipped = skipped[i]});
  }
  return audit;
}

/// With a hysteresis of 2, the first overflow leaves the scale as it is.
TEST(Audit, IsSilentOnAnOverflowThatAHysteresisForgives) {
  EXPECT_TRUE(scale_searches(with_scales({65536, 65536, 65536}, {false, true, false})));
  EXPECT_TRUE(scale_searches(with_scales({65536, 65536, 32768}, {true, true, false})));
  EXPECT_FALSE(scale_searches(with_scales({4096, 4096, 4096}, {false, true, false}, 301)))
      << "in the middle of a run the scale has found its place";
  EXPECT_FALSE(scale_searches(with_scales({4096, 4096, 4096}, {false, false, true})));
}

/// Steps stop only in the first place that overflows, and a rule cures it.
TEST(Audit, CuresAnOverflowTogetherWithTheStepThatItStops) {
  const SmallRun s("16-mixed", {}, {"model.initializer_range=60"});
  const Audit audit = s.audit(8, true);
  const auto stop = std::ranges::find(audit.findings, "nonfinite", &Finding::kind);
  ASSERT_NE(stop, audit.findings.end()) << list(audit);
  ASSERT_TRUE(stop->cure && stop->cure->tested) << list(audit);
  const auto same = std::ranges::find_if(audit.findings, [&](const Finding& f) {
    return f.kind == "overflow" && f.scope == stop->scope && f.op == stop->op && f.pass == stop->pass;
  });
  ASSERT_NE(same, audit.findings.end()) << list(audit);
  ASSERT_TRUE(same->cure) << list(audit);
  EXPECT_TRUE(same->cure->tested);
  EXPECT_EQ(same->cure->arguments, stop->cure->arguments);
}

/// The channel is 1 of 64 of every row: fewer elements than the limit of `saturation`, but most of the
/// values.
TEST(Audit, SeesOneChannelThatSaturates) {
  Audit audit;
  ValueSeries v{.scope = "model.layers.1.mlp.up_proj",
                .op = "quantize",
                .pass = "forward",
                .name = {},
                .format = Scalar::e4m3,
                .rounded = Scalar::e4m3,
                .elements = 1 << 16,
                .decided_by = {},
                .steps = {}};
  ValueStep step{.step = 1, .absmax = 448, .rms = 12};
  step.flushed = 0;
  step.overflowed = 0.003;
  step.error_rms = 0.9;
  step.error_mean = step.error_inward = 0;
  v.steps.push_back(step);
  audit.values.push_back(v);
  const SmallRun s("fp8-hybrid");
  const std::vector<Finding> found = find_problems(audit, s.config, 256);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, "saturation");
  EXPECT_EQ(found[0].share, 0.003);
  EXPECT_NE(found[0].text.find("0.3 % of model.layers.1.mlp.up_proj quantize forward is beyond 448"),
            std::string::npos)
      << found[0].text;
  EXPECT_NE(found[0].text.find("an rms error of 90 % of the rms of the stored values"), std::string::npos)
      << found[0].text;
  audit.values[0].steps[0].error_rms = 0.03;  // values just beyond a delayed scale
  EXPECT_TRUE(find_problems(audit, s.config, 256).empty());
}

/// Updates of sgd may be lost in f32 too; stochastic rounding keeps their mean.
TEST(Audit, RoundsStochasticallyWhereF32LosesUpdatesToo) {
  const SmallRun s("bf16-true", {}, {"optimizer.name=sgd", "optimizer.lr=1e-5"});
  const Audit audit = s.audit(8, true);
  ASSERT_FALSE(audit.findings.empty());
  EXPECT_EQ(audit.findings[0].kind, "rounded_away") << list(audit);
  ASSERT_TRUE(audit.findings[0].cure) << list(audit);
  EXPECT_EQ(audit.findings[0].cure->arguments,
            (std::vector<std::string>{"--set", "precision.rounding=stochastic"}));
}

/// A dynamic scale that begins too low reaches the gradients only after many windows.
TEST(Audit, BeginsWithAHigherLossScale) {
  const SmallRun s("16-mixed loss_scale=dynamic:1", {}, {"model.initializer_range=0.002"});
  const Audit audit = s.audit(8, true);
  ASSERT_FALSE(audit.findings.empty());
  EXPECT_EQ(audit.findings[0].kind, "underflow") << list(audit);
  ASSERT_TRUE(audit.findings[0].cure) << list(audit);
  EXPECT_EQ(audit.findings[0].cure->arguments,
            (std::vector<std::string>{"--set", "precision.loss_scale.initial_scale_power=24"}))
      << list(audit);
}

TEST(Audit, ReportsThatEveryBatchWasSkipped) {
  const Audit audit = SmallRun("32-true", {}, {"run.skip_batches=1-4"}).audit(4);
  EXPECT_EQ(audit.verdict.find("every step was applied"), std::string::npos) << audit.verdict;
  EXPECT_NE(audit.verdict.find("skips every batch"), std::string::npos) << audit.verdict;
}

}  // namespace
}  // namespace mantissa::lab
