// Every rounding point of a plan is observed, and what a format loses is found with its place, whatever the
// point at which it is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/small_run.h"
#include "mantissa/engine/plan/rounding_points.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/precision/policy/presets.h"

namespace mantissa::lab {
namespace {

/// The rules lower every intermediate result, the operands of single ops, and what is stored between them.
const std::vector<std::vector<std::string>>& rule_sets() {
  static const std::vector<std::vector<std::string>> kSets = {
      {},
      {"*: op=softmax compute=bf16", "*: op=statistics compute=bf16", "*: op=angles compute=bf16",
       "*: op=update compute=bf16"},
      {"*: accumulate=bf16 accumulate_block=32", "*: kv=bf16", "*: residual=bf16", "*: output=bf16"},
      {"*: grads=bf16", "*: rounding=stochastic"},
      {"lm_head: compute=f16", "*.mlp.*: compute=bf16x3", "*.self_attn: compute=tf32"},
  };
  return kSets;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(Coverage, EveryRoundingPointOfEveryPresetIsObserved) {
  std::vector<std::string> policies = {"bf16-true kahan=true",
                                       "fp8-hybrid scaling=current",
                                       "bf16-mixed compute=nvfp4",
                                       "bf16-mixed compute=mxfp4",
                                       "bf16-mixed compute=mxfp8",
                                       "bf16-mixed compute=mxfp8 scale_rounding=none",
                                       "bf16-true saturate=true",
                                       "bf16-true norm_cast=before-gain",
                                       "bf16-mixed optimizer=dynamic8-256",
                                       "bf16-true optimizer=e4m3-256 rounding=stochastic",
                                       "bf16-mixed flush_subnormals=true",
                                       "bf16-mixed accumulate=h100",
                                       "fp8-hybrid accumulate=ada",
                                       "16-mixed accumulate=v100:f16"};
  for (const precision::Preset& preset : precision::presets()) policies.push_back(preset.name);
  std::int64_t points = 0;
  for (const std::string& policy : policies) {
    for (const std::vector<std::string>& rules : rule_sets()) {
      SCOPED_TRACE(policy + "; " + joined(rules));
      std::optional<SmallRun> run;
      try {
        run.emplace(policy, rules,
                    std::vector<std::string>{"model.num_hidden_layers=1", "data.sequence_length=16"});
      } catch (const ConfigError&) {  // the policy does not take the rules
        continue;
      }
      Audit audit;
      try {
        audit = run->audit(1);
      } catch (const ConfigError&) {
        continue;
      }
      points += audit.points_of_rounding;
      std::vector<std::string> without_reason;
      for (const std::string& place : audit.unobserved) {
        if (!place.ends_with("it holds what the rounding of its weight lost"))
          without_reason.push_back(place);
      }
      EXPECT_TRUE(without_reason.empty()) << joined(without_reason);
    }
  }
  EXPECT_GT(points, 2000);
}

TEST(Coverage, WeightsThatAreRoundedForServingAreObserved) {
  for (const char* format : {"q4_0", "q8_0", "int4-32", "nf4", "mxfp4", "nvfp4"}) {
    for (const char* policy :
         {"32-true weights=", "bf16-mixed weights=", "bf16-mixed compute=mxfp8 weights="}) {
      SCOPED_TRACE(std::string(policy) + format);
      const SmallRun run(policy + std::string(format), {},
                         {"model.num_hidden_layers=1", "model.hidden_size=64", "model.intermediate_size=64",
                          "data.sequence_length=16"});
      const Audit audit = run.audit(1);
      EXPECT_TRUE(audit.unobserved.empty()) << joined(audit.unobserved);
      EXPECT_GE(audit.points_of_rounding, 8) << "7 layers and the embedding";
    }
  }
}

TEST(Coverage, ShardsRoundOnlyWhereTheirSumsDo) {
  for (const char* reduce : {"f32", "bf16", "e5m2"}) {
    const SmallRun run(std::string("bf16-mixed reduce=") + reduce, {},
                       {"batch.shards=2", "batch.micro_batch_size=2"});
    const Audit audit = run.audit(1);
    const auto sums = std::ranges::count(audit.values, plan::RoundingKind::reduce, &ValueSeries::kind);
    EXPECT_EQ(sums > 0, std::string_view(reduce) != "f32") << reduce;
    EXPECT_TRUE(audit.unobserved.empty()) << joined(audit.unobserved);
  }
}

/// The sums of an accelerator lose bits in every product, whichever op has it.
TEST(Coverage, SumsOfACardAreComparedWithThoseInF32) {
  const auto is_sum = [](const ValueSeries& v) { return v.kind == plan::RoundingKind::accumulator; };
  EXPECT_TRUE(std::ranges::none_of(SmallRun("bf16-mixed").audit(1).values, is_sum));
  const Audit audit = SmallRun("bf16-mixed accumulate=h100").audit(1);
  EXPECT_TRUE(audit.unobserved.empty()) << joined(audit.unobserved);
  for (const char* op : {"matmul", "attention", "log_prob"}) {
    for (const char* pass : {"forward", "backward"}) {
      double largest = 0;
      for (const ValueSeries& v : audit.values) {
        if (!is_sum(v) || v.op != op || v.pass != pass) continue;
        EXPECT_EQ(v.card, "h100") << v.scope;
        largest = std::max(largest, v.steps.front().error_rms.value_or(0));
      }
      EXPECT_GT(largest, 0) << op << " " << pass;
      EXPECT_LT(largest, 1e-4) << op << " " << pass << ": f32 accumulators with 25 bits in a group";
    }
  }
}

TEST(Coverage, ExpertsAndTheirRouterAreObserved) {
  const Audit audit =
      SmallRun("bf16-mixed", {"*.gate: op=softmax compute=bf16"},
               {"model.model_type=mixtral", "model.num_local_experts=4", "model.num_key_value_heads=2"})
          .audit(1);
  EXPECT_TRUE(audit.unobserved.empty()) << joined(audit.unobserved);
  const auto observes = [&](const char* op, plan::RoundingKind kind) {
    return std::ranges::any_of(
        audit.values, [&](const ValueSeries& v) { return v.op == op && v.kind == kind && v.rounds; });
  };
  EXPECT_TRUE(observes("route", plan::RoundingKind::interior));
  EXPECT_TRUE(observes("experts", plan::RoundingKind::result));
  EXPECT_TRUE(observes("combine", plan::RoundingKind::result));
}

struct Loss {
  const char* what;
  std::string policy;
  std::vector<std::string> rules, changes;
  std::string kind, scope, op, pass, word;  // of one of the findings; `word` is in its text
  double share;                             // at least
};

class Losses : public ::testing::TestWithParam<Loss> {};

TEST_P(Losses, AreFoundWhereTheyHappen) {
  const Loss& loss = GetParam();
  const Audit audit = SmallRun(loss.policy, loss.rules, loss.changes).audit(3);
  const auto found = std::ranges::find_if(audit.findings, [&](const Finding& f) {
    return f.kind == loss.kind && f.scope.find(loss.scope) != std::string::npos && f.op == loss.op &&
           f.pass == loss.pass && f.text.find(loss.word) != std::string::npos && f.share >= loss.share;
  });
  EXPECT_NE(found, audit.findings.end()) << list(audit);
  for (const Finding& f : audit.findings) {
    EXPECT_FALSE(f.evidence.empty()) << f.text;
    EXPECT_GE(f.share, 0) << f.text;
    EXPECT_LE(f.share, 1) << f.text;
  }
}

const std::vector<std::string> kSmall = {"model.initializer_range=0.005", "batch.global_batch_size=32"};

INSTANTIATE_TEST_SUITE_P(Planted, Losses,
                         ::testing::Values(Loss{"partial sums in e5m2",
                                                "bf16-mixed accumulate=e5m2 accumulate_block=32",
                                                {},
                                                {},
                                                "underflow",
                                                "self_attn",
                                                "matmul",
                                                "backward",
                                                "partial sums",
                                                0.25},
                                           Loss{"angles in bf16",
                                                "bf16-mixed",
                                                {"*: op=angles compute=bf16"},
                                                {"data.sequence_length=512"},
                                                "error",
                                                "self_attn",
                                                "angles",
                                                "forward",
                                                "angles",
                                                0},
                                           Loss{"an update in bf16",
                                                "bf16-mixed",
                                                {"*: op=update compute=bf16"},
                                                {"optimizer.lr=3e-5"},
                                                "rounded_away",
                                                "model",
                                                "update",
                                                "update",
                                                "computes the update in bf16",
                                                0.5},
                                           Loss{"a tensor scale of the first step",
                                                "bf16-mixed compute=nvfp4 scaling=delayed",
                                                {},
                                                kSmall,
                                                "underflow",
                                                "self_attn",
                                                "quantize",
                                                "backward",
                                                "in step 1 alone",
                                                0.9},
                                           Loss{"operands that attention makes",
                                                "16-mixed loss_scale=none",
                                                {},
                                                kSmall,
                                                "underflow",
                                                "self_attn",
                                                "attention",
                                                "backward",
                                                "P and dS",
                                                0.5},
                                           Loss{"sums over shards",
                                                "bf16-mixed reduce=e5m2",
                                                {},
                                                {"model.initializer_range=0.005", "batch.shards=4",
                                                 "batch.micro_batch_size=1"},
                                                "underflow",
                                                "model",
                                                "reduce",
                                                "backward",
                                                "over shards",
                                                0.1},
                                           Loss{"gradients that no other finding shows",
                                                "bf16-mixed",
                                                {"*: residual=e5m2"},
                                                {},
                                                "gradient",
                                                "model",
                                                "gradient",
                                                "backward",
                                                "the same step in f32",
                                                0},
                                           Loss{"a residual stream in e4m3",
                                                "bf16-mixed",
                                                {"*: residual=e4m3"},
                                                kSmall,
                                                "underflow",
                                                "model",
                                                "rmsnorm",
                                                "backward",
                                                "e4m3 has no number between 0 and",
                                                0.9}),
                         [](const auto& loss) {
                           std::string name = loss.param.what;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

/// A constant scale looks for no value, and a dynamic one may not find it in these steps.
TEST(Coverage, ARunWithoutAppliedStepsIsNotHealthy) {
  for (const char* scale : {"loss_scale=1.152921504606847e18", "loss_scale=dynamic:2^60"}) {
    const Audit audit = SmallRun(std::string("16-mixed ") + scale).audit(3);
    ASSERT_FALSE(audit.findings.empty()) << scale << "\n" << audit.verdict;
    EXPECT_EQ(audit.findings.front().kind, "nonfinite") << list(audit);
    EXPECT_EQ(audit.no_reference, "no observed step was applied");
  }
}

/// Half of the last place of the compensation is larger than the update, too.
TEST(Coverage, KahanThatKeepsNoUpdateLosesThem) {
  const std::vector<std::string> slow = {"optimizer.lr=1e-4", "schedule.warmup_steps=0",
                                         "schedule.name=constant"};
  const Audit lost = SmallRun("bf16-mixed params=e4m3 kahan=true", {}, slow).audit(6);
  EXPECT_NE(std::ranges::find(lost.findings, "rounded_away", &Finding::kind), lost.findings.end())
      << lost.verdict;
  EXPECT_TRUE(SmallRun("bf16-true kahan=true", {}, slow).audit(6).findings.empty());
}

TEST(Coverage, RulesWithStepsHaveTheirOwnRoundingPoints) {
  const Audit always = SmallRun("bf16-mixed").audit(4);
  const Audit part = SmallRun("bf16-mixed", {"model.layers.0: residual=e4m3 steps=2:3"}).audit(4);
  EXPECT_GT(part.points_of_rounding, always.points_of_rounding);
  const auto point = std::ranges::find(part.values, Scalar::e4m3, &ValueSeries::rounded);
  ASSERT_NE(point, part.values.end());
  ASSERT_EQ(point->steps.size(), 1U);
  EXPECT_EQ(point->steps.front().step, 3);
  EXPECT_TRUE(part.unobserved.empty()) << joined(part.unobserved);
}

/// A clean bill of health covers only the parts of the run that were observed.
TEST(Coverage, NamesThePartsOfTheRunThatItDidNotReach) {
  const std::string rule = R"({match = "*", op = "softmax", steps = "10:", compute = "e4m3"})";
  const SmallRun s("32-true", {rule});
  const Audit few = s.audit(3);
  EXPECT_EQ(few.unreached, std::vector<std::string>{"steps 11 to 40, where rule " + rule +
                                                    " applies; --steps 11 reaches them"});
  EXPECT_NE(few.verdict.find("The plan of the observed steps rounds nothing below its arithmetic. Not "
                             "observed: steps 11 to 40, where rule "),
            std::string::npos)
      << few.verdict;
  EXPECT_EQ(nlohmann::json::parse(to_json(few))["not_reached"].size(), 1U);
  EXPECT_NE(to_html(few).find("Parts of the run that were not observed"), std::string::npos);
  const Audit all = s.audit(11);
  EXPECT_TRUE(all.unreached.empty());
  EXPECT_FALSE(all.findings.empty()) << "a softmax in e4m3";
}

/// Each stage is judged at its own learning rates.
TEST(Coverage, AStageThatLosesEveryUpdateIsReported) {
  const std::vector<std::string> stages = {
      "run.stage=[{steps=36,lr=3e-2},{steps=4,lr=1e-5,sequence_length=32}]", "schedule.name=constant",
      "schedule.warmup_steps=0"};
  const Audit audit = SmallRun("bf16-true", {}, stages).audit(40);
  const auto lost = std::ranges::find(audit.findings, "rounded_away", &Finding::kind);
  ASSERT_NE(lost, audit.findings.end()) << audit.verdict;
  EXPECT_EQ(lost->step, 37);
  EXPECT_EQ(lost->evidence.at("lr"), 1e-5);
  EXPECT_NE(lost->text.find("; in steps 37 to 40"), std::string::npos) << lost->text;
}

/// A second moment in bf16 stops once (1 − beta2) times its difference from the square of the gradient is
/// below half of its last place.
TEST(Coverage, AStateOfTheOptimizerThatStaysAsItIsIsReported) {
  const std::vector<std::string> slow = {"optimizer.betas=[0.9,0.9999]", "schedule.name=constant",
                                         "run.steps=600"};
  const auto audit = [&](const std::string& policy) {
    const SmallRun s(policy, {}, slow);
    return audit_run({s.config, s.model, *s.task, *s.device},
                     {.steps = 600, .observed = 4, .tries_cures = false});
  };
  const Audit stuck = audit("bf16-true optimizer=bf16 kahan=true");
  const auto f = std::ranges::find_if(
      stuck.findings, [](const Finding& of) { return of.text.find("second_moment") != std::string::npos; });
  ASSERT_NE(f, stuck.findings.end()) << stuck.verdict;
  EXPECT_EQ(f->kind, "rounded_away");
  EXPECT_EQ(f->op, "update");
  EXPECT_GT(f->share, 0.5);
  EXPECT_EQ(f->rule, "*: optimizer=f32");
  const std::vector<std::string> faster = {"--set", "optimizer.betas=[0.9,0.96875]"};
  EXPECT_NE(std::ranges::find(f->more, faster), f->more.end());
  const Audit healthy = audit("bf16-mixed");
  EXPECT_TRUE(healthy.findings.empty()) << list(healthy);
}

TEST(Coverage, LogitsAreAPointOfTheHead) {
  const Audit audit = SmallRun("32-true output=e5m2", {}, {"model.initializer_range=1"}).audit(2);
  const auto logits = std::ranges::find(audit.values, plan::RoundingKind::logits, &ValueSeries::kind);
  ASSERT_NE(logits, audit.values.end());
  EXPECT_GT(logits->steps.front().error_rms.value_or(0), 0x1p-9);
  EXPECT_NE(std::ranges::find(audit.findings, "error", &Finding::kind), audit.findings.end())
      << audit.verdict;
  for (const ValueSeries& v : audit.values)
    EXPECT_EQ(v.rounds, v.kind == plan::RoundingKind::logits) << v.scope << v.op << v.name;
}

TEST(Coverage, TheCosineOfAGradientOfZeroIsNotKnown) {
  // Half of the least f16 is 2^-25: without a loss scale, tiny weights make gradients of zero.
  const Audit audit =
      SmallRun("16-mixed loss_scale=0.0000152587890625", {}, {"model.initializer_range=0.001"}).audit(1);
  int zero = 0;
  for (const ParameterSeries& p : audit.weights) {
    for (const GradientStep& g : p.gradient_steps) {
      EXPECT_EQ(std::isnan(g.cosine), g.zeros == 1) << p.name;
      zero += g.zeros == 1 ? 1 : 0;
    }
  }
  EXPECT_GT(zero, 0);
}

TEST(Gradients, EqualThoseOfF32InF32) {
  const Audit audit = SmallRun("32-true").audit(2);
  int compared = 0;
  for (const ParameterSeries& p : audit.weights) {
    for (const GradientStep& g : p.gradient_steps) {
      ++compared;
      EXPECT_EQ(g.error, 0) << p.name;
      EXPECT_EQ(g.vanished, 0) << p.name;
    }
  }
  EXPECT_EQ(compared, 2 * static_cast<int>(audit.weights.size()));
}

/// The loss scale and other masters do not count as errors.
TEST(Gradients, DifferByTheRoundingOfTheirFormats) {
  for (const char* policy : {"16-mixed", "bf16-mixed", "bf16-true"}) {
    const Audit audit = SmallRun(policy).audit(3);
    EXPECT_GT(audit.median_gradient_error, 0x1p-14) << policy;
    EXPECT_LT(audit.median_gradient_error, 0x1p-5) << policy;
  }
}

TEST(Gradients, AreNotComparedWhereRowsDependOnTheWeights) {
  SmallRun run("bf16-mixed");
  config::RunConfig rl = run.config;
  rl.train.objective = "rl";
  const GradientReference reference({rl, run.model, *run.task, *run.device}, rl);
  EXPECT_NE(reference.absent().find("sampled with the weights"), std::string::npos);
}

TEST(Cures, OfWeightsThatDoNotMoveAreOrderedByMemory) {
  const Audit audit = SmallRun("bf16-true", {}, {"optimizer.lr=1e-6"}).audit(8, true);
  ASSERT_FALSE(audit.findings.empty());
  const Finding& f = audit.findings.front();
  ASSERT_TRUE(f.cure) << list(audit);
  std::vector<std::string> cures = {f.cure->arguments.at(1)};
  auto before = static_cast<std::size_t>(f.evidence.at("cure_memory"));
  for (const Alternative& a : f.alternatives) {
    EXPECT_TRUE(a.cure.tested);
    EXPECT_GE(a.memory, before);
    before = a.memory;
    cures.push_back(a.cure.arguments.at(1));
  }
  std::ranges::sort(cures);
  EXPECT_EQ(cures, (std::vector<std::string>{"*: params=f32", "precision.kahan=true",
                                             "precision.rounding=stochastic"}))
      << list(audit);
}

}  // namespace
}  // namespace mantissa::lab
