// The order in which each product of a tiny Llama is summed (docs/numerics.md, "The order of every sum").
#include "mantissa/engine/plan/sum_order.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "engine/plan/planned.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/plan/rules.h"

namespace mantissa::plan::sum_order_test {
namespace {

using Names = std::set<std::string>;

Program plan_under(const std::string& policy) {
  return plan_for(precision::Policy::parse(policy));
}

/// The ops whose products are summed in tile order, such as "matmul.dx"; `chains` receives the others.
Names tiled(const Program& p, Names* chains = nullptr) {
  Names tiles;
  for (const Step& s : p.steps) {
    if (!sums_products(s)) {
      EXPECT_EQ(s.accumulator.order, SumOrder::chain) << s.op->id << " has no products";
    } else if (s.accumulator.order == SumOrder::tile) {
      tiles.emplace(s.op->id);
    } else if (chains != nullptr) {
      chains->emplace(s.op->id);
    }
  }
  return tiles;
}

const Names kAll = {"matmul",        "matmul.dx", "matmul.dw",     "log_prob",
                    "log_prob.grad", "attention", "attention.grad"};
const Names kLinear = {"matmul", "matmul.dx", "matmul.dw"};
const Names kNothing = {};

/// The message of the error under `policy`, or "".
std::string refused(const std::string& policy) {
  try {
    plan_under(policy);
    return {};
  } catch (const ConfigError& e) {
    return e.what();
  }
}

TEST(SumOrder, IsTileWhereAllFactorsAreExactInBf16) {
  for (const char* policy :
       {"bf16-mixed", "bf16-true", "bf16-matmul", "bf16-matmul-x3", "bf16-matmul-x6", "fp8-hybrid",
        "fp8-hybrid scaling=none", "bf16-mixed compute=mxfp8", "bf16-mixed compute=mxfp4",
        "bf16-mixed compute=nvfp4", "bf16-mixed kv=e4m3 params=e5m2",
        "bf16-mixed saturate=true flush_subnormals=true"}) {
    Names chains;
    EXPECT_EQ(tiled(plan_under(policy), &chains), kAll) << policy;
    EXPECT_EQ(chains, kNothing) << policy;
  }
  for (const char* policy : {"32-true", "64-true", "tf32", "16-mixed", "16-true", "32-true params=bf16",
                             "32-true residual=bf16 kv=bf16"}) {
    Names chains;
    EXPECT_EQ(tiled(plan_under(policy), &chains), kNothing) << policy;
    EXPECT_EQ(chains, kAll) << policy;
  }
  EXPECT_EQ(tiled(plan_under("transformer-engine-float16")), kLinear) << "elsewhere the factors are f16";
}

TEST(SumOrder, IsChainIfOneFactorIsNotExactInBf16) {
  const Program weights = plan_under("bf16-mixed; *: op=matmul operand=weight compute=f16");
  for (const Step& s : weights.steps) {
    if (s.op->kind != graph::OpKind::product) continue;
    EXPECT_EQ(s.accumulator.order, s.op->id == "matmul.dw" ? SumOrder::tile : SumOrder::chain) << s.op->id;
  }
  const auto order = [](const char* policy, const char* scope, const char* op, graph::Phase phase) {
    return find_step(plan_under(policy), scope, op, phase)->accumulator.order;
  };
  // P and dS, which attention computes itself.
  const char* attention = "bf16-true; *: op=attention pass=backward compute=f32";
  EXPECT_EQ(order(attention, "model.layers.0.self_attn", "attention", graph::Phase::forward), SumOrder::tile);
  EXPECT_EQ(order(attention, "model.layers.0.self_attn", "attention", graph::Phase::backward),
            SumOrder::chain);
  // The gradient of logits; the logits have one order in both passes.
  for (const auto phase : {graph::Phase::forward, graph::Phase::backward})
    EXPECT_EQ(order("bf16-true; lm_head: compute=f32", "lm_head", "log_prob", phase), SumOrder::chain);
}

TEST(SumOrder, OfLogitsIsTheSameInAllPrograms) {
  for (const char* line :
       {"bf16-mixed", "32-true", "bf16-true; lm_head: compute=f32", "fp8-hybrid", "bf16-true",
        "transformer-engine-float16", "bf16-mixed; lm_head: accumulate_order=chain"}) {
    const auto policy = precision::Policy::parse(line);
    CompileOptions options{16, 16};
    options.join_head = true;
    std::set<SumOrder> orders;
    bool joined = false;
    const auto add = [&](const Program& p) {
      for (const Step& s : p.steps) {
        if (s.scope == "lm_head" && sums_products(s)) orders.insert(s.accumulator.order);
        joined = joined || s.op->id == "log_prob.training";
      }
    };
    add(plan_for(policy, options));
    add(compile(model::build_logits(mantissa::testing::tiny_llama(false), 16, 16, false), policy, {16, 16},
                {}));
    add(compile(model::build_decode(mantissa::testing::tiny_llama(false), 16, 1, 16), policy, {16, 16}, {}));
    EXPECT_EQ(orders.size(), 1U) << line;
    EXPECT_TRUE(joined) << line;
  }
}

TEST(SumOrder, IsSetByAFieldAndByRules) {
  EXPECT_EQ(tiled(plan_under("bf16-mixed accumulate_order=chain")), kNothing);
  EXPECT_EQ(tiled(plan_under("32-true accumulate_order=tile")), kAll);
  EXPECT_EQ(tiled(plan_under("bf16-mixed accumulate_order=chain; *: op=matmul accumulate_order=auto")),
            kLinear);
  EXPECT_EQ(tiled(plan_under("bf16-mixed; *: pass=forward accumulate_order=chain")),
            (Names{"matmul.dx", "matmul.dw", "log_prob.grad", "attention.grad"}));
  const Program p = plan_for(
      precision::Policy::parse("bf16-mixed").with_rule("*.up_proj: accumulate_order=chain", "--rule 1"));
  const Step* up = find_step(p, "model.layers.0.mlp.up_proj", "matmul");
  EXPECT_EQ(up->accumulator.order, SumOrder::chain);
  EXPECT_EQ(up->decided_by, "--rule 1");
  EXPECT_EQ(find_step(p, "model.layers.0.mlp.gate_proj", "matmul")->accumulator.order, SumOrder::tile);
  // A format that tile order would not get by itself.
  EXPECT_EQ(refused("16-mixed accumulate_order=tile"), "");
  EXPECT_EQ(refused("tf32; lm_head: accumulate_order=tile"), "");
}

TEST(SumOrder, TileIsAnErrorForF64) {
  const std::string f64 = refused("64-true accumulate_order=tile");
  EXPECT_NE(f64.find(" matmul: accumulate_order=tile (policy line) is not available for f64, "),
            std::string::npos)
      << f64;
}

TEST(SumOrder, OfPartsCanBeSet) {
  EXPECT_EQ(tiled(plan_under("bf16-matmul-x6 accumulate_order=chain")), kNothing);
  EXPECT_EQ(tiled(plan_under("bf16-matmul-x6 accumulate=f16")), kAll);
  EXPECT_EQ(refused("bf16-mixed accumulate_order=tile; lm_head: compute=bf16x3"), "");
}

TEST(SumOrder, TileRoundsPartialSumsAtMultiplesOfItsBlock) {
  EXPECT_EQ(refused("bf16-mixed; lm_head: accumulate=f16 accumulate_block=33"),
            "lm_head log_prob: accumulate_block=33 (policy rule 1): expected a multiple of 32, the block of "
            "sums in tile order. Fix: accumulate_block=64, or accumulate_order=chain");
  for (const char* policy : {"bf16-mixed accumulate=f16 accumulate_block=64", "bf16-mixed accumulate=f16",
                             "bf16-mixed accumulate=f16 accumulate_block=33 accumulate_order=chain",
                             "32-true accumulate=f16 accumulate_block=33",
                             "32-true; *: op=attention accumulate=f16 accumulate_block=8",
                             "bf16-mixed; *: op=attention accumulate=f16 accumulate_block=8"})
    EXPECT_EQ(refused(policy), "") << policy;
  // Without roundings a block means nothing, also to the kernels.
  for (const Step& s : plan_under("bf16-mixed accumulate_block=33").steps) {
    EXPECT_TRUE(!sums_products(s) || s.accumulator.block == 0) << s.op->id;
  }
}

TEST(SumOrder, OfScaledFactorsIsChainIfSumsRound) {
  // The sum of 32 products of e4m3 values up to 448 exceeds f16, whatever their scale is.
  EXPECT_EQ(tiled(plan_under("fp8-hybrid accumulate=f16")),
            (Names{"log_prob", "log_prob.grad", "attention", "attention.grad"}));
  EXPECT_EQ(tiled(plan_under("fp8-hybrid accumulate=f16 scaling=none")), kAll);
  EXPECT_EQ(tiled(plan_under("bf16-mixed compute=mxfp8 accumulate=f16")), kAll)
      << "mx blocks have no such scale";
  EXPECT_EQ(tiled(plan_under("fp8-hybrid accumulate=f16 accumulate_order=tile")), kAll);
}

TEST(SumOrder, OfACardIsThatOfAllProducts) {
  for (const char* policy :
       {"bf16-mixed accumulate=h100", "16-mixed accumulate=v100", "tf32 accumulate=a100",
        "fp8-hybrid accumulate=b200:k=64", "32-true accumulate=mi250", "16-mixed accumulate=ada:f16"}) {
    for (const Step& s : plan_under(policy).steps) {
      if (!sums_products(s)) continue;
      EXPECT_EQ(s.accumulator.order, SumOrder::card) << policy << s.op->id;
      EXPECT_NE(s.accumulator.card, Card::none) << policy << s.op->id;
    }
  }
  const Program p = plan_under("bf16-mixed accumulate=h100; lm_head: accumulate=f32");
  EXPECT_EQ(find_step(p, "lm_head", "log_prob")->accumulator.order, SumOrder::tile);
  EXPECT_EQ(find_step(p, "model.layers.0.mlp.up_proj", "matmul")->accumulator.order, SumOrder::card);
}

TEST(SumOrder, NamesFactorsThatACardDoesNotMultiply) {
  EXPECT_EQ(
      refused("32-true accumulate=h100"),
      "model.layers.0.self_attn.q_proj matmul: accumulate=h100 (policy line): h100 multiplies tf32, bf16, f16, "
      "e5m2, e4m3, and the factors here are f32. Fix: compute=bf16, or the rule "
      "\"model.layers.0.self_attn.q_proj: accumulate=f32\"");
  const auto says = [](const std::string& policy, const std::string& text) {
    const std::string message = refused(policy);
    EXPECT_NE(message.find(text), std::string::npos) << policy << ": " << message;
  };
  says("bf16-mixed accumulate=v100",
       "v100 multiplies f16, and the factors here are bf16. Fix: compute=f16, or");
  says("bf16-matmul-x3 accumulate=h100", "and the factors here are bf16 in 2 parts.");
  says("bf16-mixed compute=mxfp8 accumulate=h100",
       "and the factors here are blocks of mxfp8. Fix: compute=bf16, or");
  says(
      "bf16-mixed compute=mxfp8 accumulate=b200:f16",
      "b200 multiplies tf32, bf16, f16, e5m2, e4m3, and blocks of mxfp8, mxfp8-e5m2, mxfp6-e2m3, mxfp6-e3m2, mxfp4, "
      "nvfp4 (in part with f16 accumulators), and the factors here are blocks of mxfp8.");
  for (const char* blocks :
       {"mxfp8", "mxfp6-e2m3", "mxfp4", "nvfp4", "mxfp8; *: operand=gradient compute=mxfp8-e5m2"}) {
    const std::string policy = std::string("bf16-mixed accumulate=b200 compute=") + blocks;
    EXPECT_EQ(refused(policy + "; *: op=matmul.dw accumulate=f32"), "") << blocks;
    // Blocks along the tokens are stored as values.
    says(policy,
         "blocks along the tokens are stored as values, not as elements and scales. Fix: the rule \"*: "
         "op=matmul.dw accumulate=f32\"");
  }
  says("bf16-mixed accumulate=b200 compute=mxfp8 scale_rounding=none",
       "blocks with f32 scales are stored as values");
  EXPECT_EQ(
      refused("bf16-mixed accumulate=b200 compute=mxfp8 scale_rounding=none; *: op=matmul accumulate=f32"),
      "");
  says("bf16-mixed accumulate=h100:f16",
       "(in part with f16 accumulators), and the factors here are bf16. Fix: accumulate=h100, or");
  says("fp8-hybrid accumulate=h100:k=16",
       "(in part with k=16), and the factors here are e4m3. Fix: accumulate=h100, or");
  says("16-mixed accumulate=h100:k=4", "and the factors here are f16. Fix: accumulate=h100, or");
  says("32-true accumulate=h100:k=4", "and the factors here are f32. Fix: compute=tf32, or");
  for (const char* cured : {"32-true accumulate=h100 compute=bf16", "bf16-mixed accumulate=v100 compute=f16",
                            "fp8-hybrid accumulate=h100", "32-true accumulate=h100:k=4 compute=tf32"})
    EXPECT_EQ(refused(cured), "") << cured;
}

TEST(SumOrder, NoHeadReadsScaledFactors) {
  // Its sums continue over chunks of the vocabulary, which no scale could multiply (kernels/gemm.h).
  for (const char* policy : {"fp8-hybrid", "fp8-hybrid; lm_head: compute=e4m3", "bf16-mixed compute=nvfp4",
                             "bf16-mixed compute=mxfp8", "bf16-mixed; lm_head: compute=nvfp4"}) {
    for (const Step& s : plan_under(policy).steps) {
      if (s.op->kind != graph::OpKind::head) continue;
      const Program p = plan_under(policy);
      for (const Operand& o : s.inputs) EXPECT_FALSE(p.buffer(o.buffer).scaled) << policy;
    }
  }
}

TEST(SumOrder, IsShownWithTheAccumulator) {
  const std::vector<PlanRow> rows = plan_rows(plan_under("bf16-mixed; *.o_proj: accumulate_order=chain"));
  EXPECT_EQ(find_row(rows, "model.layers.0.mlp.up_proj", "matmul").order, "tile");
  EXPECT_EQ(find_row(rows, "model.layers.0.self_attn.o_proj", "matmul").order, "chain");
  EXPECT_EQ(find_row(rows, "model.layers.0.self_attn", "attention").order, "tile");
  EXPECT_EQ(find_row(rows, "model.layers.0.self_attn", "softmax").order, "");
  EXPECT_EQ(find_row(rows, "model.norm", "rmsnorm").order, "");
  const std::vector<PlanRow> card = plan_rows(plan_under("bf16-mixed accumulate=h100:k=64"));
  const PlanRow up = find_row(card, "model.layers.0.mlp.up_proj", "matmul");
  EXPECT_EQ(up.accumulated, "h100:k=64");
  EXPECT_EQ(up.order, "card");
  EXPECT_NE(up.kernel.find(
                ", summed by wgmma.k16 of h100: groups of 16 terms, 25 bits, an f32 sum of every 64 terms"),
            std::string::npos)
      << up.kernel;
  EXPECT_EQ(find_row(card, "model.norm", "rmsnorm").accumulated, "f32");
}

}  // namespace
}  // namespace mantissa::plan::sum_order_test
