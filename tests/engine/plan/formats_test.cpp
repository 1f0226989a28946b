// The formats that the plan assigns in a tiny Llama (docs/numerics.md, "Rounding points").
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

namespace mantissa::plan::formats_test {
namespace {

TEST(Formats, OfBf16MixedAreThoseOfTheRoundingPoints) {
  const std::vector<PlanRow> rows = plan_rows(plan_for(precision::Policy::parse("bf16-mixed")));
  EXPECT_EQ(plan_table(rows, graph::Phase::forward),
            R"(scope                                    op         store  mul   acc      out      decided by
model.embed_tokens                       gather     f32    –     –        f32      bf16-mixed
model.layers.*.input_layernorm           rmsnorm    f32    –     f32      bf16     bf16-mixed
model.layers.*.input_layernorm           statistics –      –     f32      f32      built-in
model.layers.*.self_attn.{q,k,v}_proj    matmul     bf16   bf16  f32 tile bf16     bf16-mixed
model.layers.*.self_attn                 rope       bf16   –     f32      bf16     bf16-mixed
model.layers.*.self_attn                 angles     –      –     f32      f32      built-in
model.layers.*.self_attn                 attention  bf16   bf16  f32 tile bf16     bf16-mixed
model.layers.*.self_attn                 softmax    –      –     f32      f32      built-in
model.layers.*.self_attn.o_proj          matmul     bf16   bf16  f32 tile bf16→f32 bf16-mixed
model.layers.*.post_attention_layernorm  rmsnorm    f32    –     f32      bf16     bf16-mixed
model.layers.*.post_attention_layernorm  statistics –      –     f32      f32      built-in
model.layers.*.mlp.{gate,up}_proj        matmul     bf16   bf16  f32 tile bf16     bf16-mixed
model.layers.*.mlp                       swiglu     bf16   –     f32      bf16     bf16-mixed
model.layers.*.mlp.down_proj             matmul     bf16   bf16  f32 tile bf16→f32 bf16-mixed
model.norm                               rmsnorm    f32    –     f32      bf16     bf16-mixed
model.norm                               statistics –      –     f32      f32      built-in
lm_head                                  log_prob   bf16   bf16  f32 tile f32      bf16-mixed
lm_head                                  softmax    –      –     f32      f32      built-in
)");
  EXPECT_EQ(plan_table(rows, graph::Phase::backward),
            R"(scope                                    op         store  mul   acc      out      decided by
lm_head                                  log_prob   bf16   bf16  f32 tile bf16     bf16-mixed
lm_head                                  softmax    –      –     f32      f32      built-in
model.norm                               rmsnorm    f32    –     f32      f32      bf16-mixed
model.norm                               statistics –      –     f32      f32      built-in
model.layers.*.mlp.down_proj             matmul dx  bf16   bf16  f32 tile bf16     bf16-mixed
model.layers.*.mlp.down_proj             matmul dw  f32    bf16  f32 tile f32      bf16-mixed
model.layers.*.mlp                       swiglu     bf16   –     f32      bf16     bf16-mixed
model.layers.*.mlp.up_proj               matmul     bf16   bf16  f32 tile f32      bf16-mixed
model.layers.*.mlp.gate_proj             matmul dx  bf16   bf16  f32 tile bf16     bf16-mixed
model.layers.*.mlp.gate_proj             matmul dw  bf16   bf16  f32 tile f32      bf16-mixed
model.layers.*.post_attention_layernorm  rmsnorm    f32    –     f32      f32      bf16-mixed
model.layers.*.post_attention_layernorm  statistics –      –     f32      f32      built-in
model.layers.*.self_attn.o_proj          matmul dx  bf16   bf16  f32 tile bf16     bf16-mixed
model.layers.*.self_attn.o_proj          matmul dw  f32    bf16  f32 tile f32      bf16-mixed
model.layers.*.self_attn                 attention  bf16   bf16  f32 tile bf16     bf16-mixed
model.layers.*.self_attn                 softmax    –      –     f32      f32      built-in
model.layers.*.self_attn                 rope       bf16   –     f32      bf16     bf16-mixed
model.layers.*.self_attn                 angles     –      –     f32      f32      built-in
model.layers.*.self_attn.{v,k}_proj      matmul     bf16   bf16  f32 tile f32      bf16-mixed
model.layers.*.self_attn.q_proj          matmul dx  bf16   bf16  f32 tile bf16     bf16-mixed
model.layers.*.self_attn.q_proj          matmul dw  bf16   bf16  f32 tile f32      bf16-mixed
model.layers.*.input_layernorm           rmsnorm    f32    –     f32      f32      bf16-mixed
model.layers.*.input_layernorm           statistics –      –     f32      f32      built-in
model.embed_tokens                       gather     int32  –     –        f32      bf16-mixed
)");
}

TEST(Formats, OfAMomentThatWouldStallAreAnErrorThatNamesTheParameter) {
  const auto policy =
      precision::Policy::parse("bf16-true optimizer=bf16 rounding=stochastic; model.norm: rounding=nearest");
  try {
    plan_for(policy);
    FAIL() << "the rule was taken";
  } catch (const ConfigError& e) {
    EXPECT_EQ(std::string(e.what()).find("model.norm.weight: optimizer=bf16 is not available"), 0U)
        << e.what();
  }
}

TEST(Formats, OfUniformPoliciesAreUniform) {
  for (const auto& [policy, format] :
       {std::pair{"64-true", Scalar::f64}, std::pair{"32-true", Scalar::f32}}) {
    for (const Buffer& b : plan_for(precision::Policy::parse(policy)).buffers) {
      EXPECT_TRUE(b.integer || b.type == format) << policy << ": " << b.name << " is " << name(b.type);
    }
  }
}

TEST(Formats, OfFactorsNarrowerThanStorageNeedNoCopies) {
  const Program p = plan_for(precision::Policy::parse("32-true compute=tf32"));
  EXPECT_EQ(p.memory.copies, 0U);
  EXPECT_EQ(find_step(p, "model.layers.0.mlp.up_proj", "matmul")->inputs[0].operand, Scalar::tf32);
}

TEST(Formats, OfAModuleCastAsAWholeApplyToDirectlyReadWeights) {
  // As in DeepSpeed's fp16 and FSDP's param_dtype, embedding rows and gains are copies too.
  const Program p = plan_for(precision::Policy::parse("16-mixed residual=f16"));
  const std::vector<PlanRow> rows = plan_rows(p);
  const std::pair<const char*, const char*> reads[] = {{"model.embed_tokens", "gather"},
                                                       {"model.layers.0.input_layernorm", "rmsnorm"},
                                                       {"model.norm", "rmsnorm"}};
  for (const auto& [scope, op] : reads) {
    EXPECT_EQ(find_row(rows, scope, op).stored, "f16") << scope;
    EXPECT_EQ(find_row(rows, scope, op).output, "f16") << scope;
  }
  const auto backward = find_step(p, "model.norm", "rmsnorm", graph::Phase::backward);
  const auto gain = std::ranges::find_if(backward->inputs, [&](const Operand& o) {
    return p.buffer(o.buffer).slot >= 0 && !p.buffer(o.buffer).integer;
  });
  ASSERT_NE(gain, backward->inputs.end());
  EXPECT_EQ(p.buffer(gain->buffer).home, Home::copy);
  // A rule raises one of them; if the stream is f32, they are the masters.
  const auto raised = precision::Policy::parse("16-mixed residual=f16; model.norm: residual=f32");
  EXPECT_EQ(find_row(plan_rows(plan_for(raised)), "model.norm", "rmsnorm").stored, "f32");
  EXPECT_EQ(find_row(plan_rows(plan_for(raised)), "model.norm", "rmsnorm").decided_by, "policy rule 1");
  const std::vector<PlanRow> mixed = plan_rows(plan_for(precision::Policy::parse("16-mixed")));
  EXPECT_EQ(find_row(mixed, "model.norm", "rmsnorm").stored, "f32");
}

TEST(Formats, OfABranchRoundedBeforeItsSumAreBothShown) {
  const std::vector<PlanRow> rows = plan_rows(plan_for(precision::Policy::parse("bf16-mixed")));
  EXPECT_EQ(find_row(rows, "model.layers.0.mlp.down_proj", "matmul").output, "f32");
  EXPECT_EQ(find_row(rows, "model.layers.0.mlp.down_proj", "matmul").rounded, "bf16");
  EXPECT_EQ(find_row(rows, "model.layers.0.mlp.up_proj", "matmul").rounded, "");
}

TEST(ActivationRounding, IsSetByARuleAndIsASeparateStep) {
  for (const char* line :
       {"bf16-true rounding=stochastic", "bf16-true; *: pass=update rounding=stochastic"}) {
    for (const Step& s : plan_for(precision::Policy::parse(line)).steps)
      EXPECT_EQ(s.rounding, Rounding::nearest) << line;
  }
  const Program p = plan_for(
      precision::Policy::parse("bf16-mixed kv=e4m3; *: rounding=stochastic; *.mlp: rounding=toward-zero"));
  std::set<std::uint64_t> names;
  std::size_t rounded = 0;
  for (const Step& s : p.steps) {
    const Buffer& out = p.buffer(s.outputs.front());
    if (out.type == Scalar::bf16 && out.home == Home::activation) {
      EXPECT_EQ(s.op->id, "round") << s.scope;
      EXPECT_EQ(s.rounding,
                s.scope.find(".mlp") != std::string::npos ? Rounding::toward_zero : Rounding::stochastic)
          << s.scope;
      EXPECT_TRUE(s.decided_by.starts_with("policy rule")) << s.decided_by;
    }
    if (out.type == Scalar::e4m3) {
      EXPECT_EQ(s.rounding, Rounding::nearest) << "kv";
    }
    if (s.rounding != Rounding::stochastic) continue;
    ++rounded;
    names.insert(s.random_name);
  }
  EXPECT_GT(rounded, 20U);
  EXPECT_EQ(names.size(), rounded) << "no two values share random bits";
}

TEST(Interiors, AreLoweredByRulesThatNameThemOnly) {
  const auto base = precision::Policy::parse("bf16-mixed").with_rule("*: compute=f16", "all");
  for (const Step& s : plan_for(base).steps) EXPECT_EQ(s.interior, Scalar::f32) << s.scope << ' ' << s.op->id;
  const Program p = plan_for(base.with_rule("*.0.self_attn: op=softmax compute=bf16", "attention")
                                 .with_rule("lm_head: op=softmax pass=backward compute=f16", "head")
                                 .with_rule("*norm*: op=statistics compute=e5m2", "norms"));
  const auto interior = [&](const char* scope, const char* op, graph::Phase phase = graph::Phase::forward) {
    return find_step(p, scope, op, phase)->interior;
  };
  EXPECT_EQ(interior("model.layers.0.self_attn", "attention"), Scalar::bf16);
  EXPECT_EQ(interior("model.layers.0.self_attn", "attention", graph::Phase::backward), Scalar::bf16);
  EXPECT_EQ(interior("model.layers.0.self_attn", "rope"), Scalar::f32);
  EXPECT_EQ(interior("model.layers.1.self_attn", "attention"), Scalar::f32);
  EXPECT_EQ(interior("lm_head", "log_prob"), Scalar::f32);
  EXPECT_EQ(interior("lm_head", "log_prob", graph::Phase::backward), Scalar::f16);
  EXPECT_EQ(interior("model.norm", "rmsnorm"), Scalar::e5m2);
  std::set<std::string> by;
  for (const PlanRow& row : plan_rows(p)) {
    if (row.op == "softmax" || row.op == "statistics") by.insert(row.output + " " + row.decided_by);
  }
  EXPECT_EQ(by, (std::set<std::string>{"bf16 attention", "f32 built-in", "f16 head", "e5m2 norms"}));
}

TEST(Interiors, OfTheHeadHaveOneFormatInBothPassesOfAJointStep) {
  const auto joined = [](const precision::Policy& policy) {
    CompileOptions options{16, 16};
    options.join_head = true;
    const Program p = plan_for(policy, options);
    return std::ranges::any_of(p.steps, [](const Step& s) { return s.op->id == "log_prob.training"; });
  };
  EXPECT_TRUE(joined(precision::Policy::parse("32-true; lm_head: op=softmax compute=bf16")));
  for (const char* rule : {"lm_head: op=softmax pass=forward compute=bf16",
                           "lm_head: pass=backward accumulate=f16", "lm_head: pass=forward output=bf16"})
    EXPECT_FALSE(joined(precision::Policy().with_rule(rule, ""))) << rule;
}

TEST(Interiors, OfAnglesAreSeparateTables) {
  const Program p = plan_for(precision::Policy::parse("32-true; *.1.self_attn: op=angles compute=bf16"));
  const auto table = [&](const char* scope, graph::Phase phase) {
    return p.buffer(find_step(p, scope, "rope", phase)->inputs[2].buffer).name;
  };
  EXPECT_EQ(table("model.layers.0.self_attn", graph::Phase::forward), "rope.cos");
  EXPECT_EQ(table("model.layers.1.self_attn", graph::Phase::forward), "rope.cos:bf16");
  EXPECT_EQ(table("model.layers.1.self_attn", graph::Phase::backward), "rope.cos:bf16");
  EXPECT_EQ(p.constants.size(), 4U);
}

TEST(Interiors, TakeAPlainFormatAndNothingElse) {
  for (const char* rule : {"*: op=softmax accumulate=bf16", "*: op=softmax compute=bf16 saturate=true",
                           "*: op=statistics compute=bf16x3", "*: op=angles compute=mxfp8",
                           "*: op=softmax compute=fp8-hybrid"}) {
    try {
      plan_for(precision::Policy().with_rule(rule, "--rule 1"));
      ADD_FAILURE() << rule;
    } catch (const ConfigError& e) {
      EXPECT_NE(std::string(e.what()).find(" supports only a plain number format for compute"),
                std::string::npos)
          << e.what();
    }
  }
}

TEST(Scaled, FactorsOfLinearOpsAreStoredInTheirFormats) {
  for (const auto& [line, elsewhere] :
       {std::pair{"fp8-hybrid", Scalar::bf16}, {"transformer-engine-float16", Scalar::f16}}) {
    SCOPED_TRACE(line);
    const Program p = plan_for(precision::Policy::parse(line));
    const Step* up = find_step(p, "model.layers.0.mlp.up_proj", "matmul");
    for (const Operand& o : up->inputs) {
      EXPECT_EQ(p.buffer(o.buffer).type, Scalar::e4m3);
      EXPECT_TRUE(p.buffer(o.buffer).scaled.has_value());
    }
    EXPECT_EQ(p.buffer(up->inputs[1].buffer).home, Home::copy);
    EXPECT_EQ(p.buffer(up->outputs[0]).type, elsewhere);
    int gradients = 0, heads = 0;
    for (const Step& s : p.steps) {
      if (s.op->id == "matmul.dw" && s.scope == "model.layers.0.mlp.up_proj") {
        ++gradients;
        EXPECT_EQ(p.buffer(s.inputs[0].buffer).type, Scalar::e5m2) << "gradients";
        EXPECT_EQ(p.buffer(s.inputs[1].buffer).type, Scalar::e4m3);
        EXPECT_EQ(s.inputs[1].buffer, up->inputs[0].buffer) << "rounded once, for both passes";
      }
      if (s.op->op == "log_prob") {
        ++heads;
        EXPECT_EQ(s.compute, Factor(elsewhere)) << "the head has no scales";
      }
    }
    EXPECT_EQ(gradients, 1);
    EXPECT_GT(heads, 0);
  }
}

TEST(Scaled, NoScalingMeansNoScaleOfATensor) {
  for (const char* line : {"fp8-hybrid scaling=none", "bf16-mixed compute=nvfp4 scaling=none"})
    EXPECT_TRUE(plan_for(precision::Policy::parse(line)).scales.empty()) << line;
}

TEST(Scaled, ReadersThatScaleDifferentlyHaveSeparateScales) {
  const Program p = plan_for(precision::Policy::parse("fp8-hybrid; *.up_proj: scale_margin=2"));
  const auto scale_of = [&](const char* scope) {
    const Operand& input = find_step(p, scope, "matmul")->inputs[0];
    return p.scales.at(static_cast<std::size_t>(p.buffer(input.buffer).scaled->scale));
  };
  EXPECT_EQ(scale_of("model.layers.0.mlp.up_proj").margin, 2);
  EXPECT_EQ(scale_of("model.layers.0.mlp.gate_proj").margin, 0);
}

TEST(Scaled, ProductsAreShownWithTheFormatsOfTheirFactors) {
  std::vector<std::string> forward, backward;
  for (const PlanRow& row : plan_rows(plan_for(precision::Policy::parse("fp8-hybrid")))) {
    if (row.op == "matmul") (row.pass == "forward" ? forward : backward).push_back(row.multiplied);
  }
  EXPECT_EQ(std::set(forward.begin(), forward.end()), std::set<std::string>{"e4m3"});
  EXPECT_EQ(std::set(backward.begin(), backward.end()), std::set<std::string>{"e5m2·e4m3"});
}

TEST(Scaled, GradientsCanHaveAnotherBlockFormat) {
  const Program p =
      plan_for(precision::Policy::parse("bf16-mixed compute=mxfp8; *: operand=gradient compute=mxfp8-e5m2"));
  std::set<std::string> forward, backward;
  for (const PlanRow& row : plan_rows(p)) {
    if (row.op == "matmul") (row.pass == "forward" ? forward : backward).insert(row.multiplied);
  }
  EXPECT_EQ(forward, std::set<std::string>{"mxfp8"});
  EXPECT_EQ(backward, std::set<std::string>{"mxfp8-e5m2·mxfp8"});
  std::set<std::string> factors;  // what native_only and targets check
  for (const FormatUse& use : formats_used(p)) {
    if (use.factor) factors.insert(use.format);
  }
  EXPECT_EQ(factors, (std::set<std::string>{"mxfp8", "mxfp8-e5m2", "bf16"}));
}

TEST(Scaled, PackedBlocksAreShownWhereTheyAreStored) {
  const std::vector<PlanRow> rows = plan_rows(plan_for(precision::Policy::parse("bf16-mixed compute=mxfp4")));
  EXPECT_EQ(find_row(rows, "model.layers.0.mlp.up_proj", "matmul").stored, "mxfp4");
  EXPECT_EQ(find_row(rows, "model.layers.0.mlp.up_proj", "matmul").multiplied, "mxfp4");
  const PlanRow quantize = find_row(rows, "model.layers.0.mlp.down_proj", "quantize");
  EXPECT_EQ(quantize.stored + "→" + quantize.output, "bf16→mxfp4");
}

TEST(Scaled, BlocksLieAlongTheSum) {
  const Program p = plan_for(precision::Policy::parse("bf16-mixed compute=mxfp4"));
  std::set<std::string> passes;
  for (const Step& s : p.steps) {
    if (s.op->op != "matmul") continue;
    passes.emplace(s.op->id);
    for (std::size_t i = 0; i < 2; ++i) {
      const bool across = s.op->id == "matmul.dw" || (s.op->id == "matmul.dx" && i == 1);
      EXPECT_EQ(p.buffer(s.inputs[i].buffer).scaled->along_rows, across) << s.op->id << " " << i;
    }
  }
  EXPECT_EQ(passes, (std::set<std::string>{"matmul", "matmul.dw", "matmul.dx"}));
  EXPECT_TRUE(p.scales.empty()) << "powers of two need no scale of the tensor";
}

}  // namespace
}  // namespace mantissa::plan::formats_test
