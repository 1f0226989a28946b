// Weights that a plan rounds to the format in which they will be served: which they are, and in what copies
// steps read them.
#include <gtest/gtest.h>

#include <string>

#include "engine/plan/planned.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/plan/rounding_points.h"

namespace mantissa::plan::served_weights_test {
namespace {

graph::Graph wide_llama(bool tied = false, std::int64_t vocabulary = 32) {
  return model::build_log_prob(
      mantissa::testing::tiny_llama(tied, vocabulary, {{"hidden_size", 64}, {"intermediate_size", 128}}), 16,
      16, true);
}

Program plan_of(const std::string& policy, bool tied = false) {
  return compile(wide_llama(tied), precision::Policy::parse(policy), {16, 16}, {});
}

/// The weights that steps read, with the operand.
template <class See>
void each_weight(const Program& p, const See& see) {
  for (const Step& s : p.steps) {
    for (const Operand& o : s.inputs) {
      const Buffer& b = p.buffer(o.buffer);
      if (b.home == Home::master || b.home == Home::copy)
        see(s, o, b, p.slots[static_cast<std::size_t>(b.slot)]);
    }
  }
}

TEST(ServedWeights, AreRoundedForEveryProductAndLookUpButNotVectors) {
  for (const bool tied : {false, true}) {
    for (const char* line :
         {"32-true weights=q4_0", "bf16-mixed weights=q4_0", "bf16-true weights=q4_0", "tf32 weights=q4_0",
          "32-true compute=bf16x3 weights=q4_0", "bf16-mixed compute=mxfp8 weights=q4_0",
          "fp8-hybrid weights=q4_0", "16-mixed flush_subnormals=true saturate=true weights=q4_0"}) {
      SCOPED_TRACE(line);
      std::size_t served = 0;
      each_weight(plan_of(line, tied), [&](const Step& s, const Operand&, const Buffer& b, const Slot& slot) {
        const bool matrix = slot.shape.rank() == 2;
        EXPECT_EQ(b.served.format, matrix ? WeightFormat::q4_0 : WeightFormat::none)
            << s.scope << ' ' << b.name;
        served += matrix ? 1 : 0;
      });
      EXPECT_GT(served, 30U) << "14 products forward and backward, and the embedding";
    }
  }
}

TEST(ServedWeights, KeepTheirMastersAndRoundToComputeNext) {
  const Program p = plan_of("bf16-mixed weights=q4_0");
  each_weight(p, [&](const Step& s, const Operand& o, const Buffer& b, const Slot& slot) {
    EXPECT_EQ(slot.master, Scalar::f32);
    if (s.op->op == "matmul") {
      EXPECT_EQ(b.type, Scalar::bf16) << b.name;
      EXPECT_EQ(o.operand, Factor(Scalar::bf16));
    }
    if (s.op->op == "gather") {
      EXPECT_EQ(b.type, Scalar::f32) << "the residual stream is f32";
    }
  });
  each_weight(plan_of("32-true weights=nf4"), [&](const Step&, const Operand&, const Buffer& b, const Slot&) {
    EXPECT_EQ(b.type, Scalar::f32) << b.name;
  });
}

TEST(ServedWeights, OfMastersBelowF32AreNotRoundedToThemAgain) {
  each_weight(plan_of("32-true params=bf16 rounding=stochastic weights=q4_0"),
              [](const Step& s, const Operand& o, const Buffer& b, const Slot& slot) {
                if (slot.shape.rank() != 2) return;
                EXPECT_EQ(b.type, Scalar::f32) << s.scope;
                EXPECT_EQ(o.operand, Factor(Scalar::f32)) << s.scope;
              });
}

TEST(ServedWeights, AreSetByRulesForScopes) {
  const Program p = plan_of("bf16-mixed weights=q4_0; *.mlp.*: weights=nf4; lm_head: weights=none");
  each_weight(p, [](const Step&, const Operand&, const Buffer& b, const Slot& slot) {
    if (slot.shape.rank() != 2) return;
    const WeightFormat expected = slot.name.find(".mlp.") != std::string::npos ? WeightFormat::nf4
                                  : slot.name.starts_with("lm_head")           ? WeightFormat::none
                                                                               : WeightFormat::q4_0;
    EXPECT_EQ(b.served.format, expected) << slot.name;
  });
  EXPECT_TRUE(p.unmatched_rules.empty());
  const PlanRow row = find_row(plan_rows(p), "model.layers.0.mlp.up_proj", "matmul");
  EXPECT_EQ(row.stored, "nf4>bf16");
  EXPECT_EQ(row.decided_by, "policy rule 1");
  EXPECT_EQ(plan_of("bf16-mixed; *.nothing: weights=q4_0").unmatched_rules.size(), 1U);
}

TEST(ServedWeights, AreRoundingPoints) {
  std::size_t points = 0;
  const Program p = plan_of("32-true weights=q8_0; *.mlp.*: compute=bf16");
  for (const RoundingPoint& point : rounding_points(p)) {
    if (point.kind != RoundingKind::weight) continue;
    ++points;
    EXPECT_TRUE(point.unobserved.empty());
    const bool mlp = point.scope(p).find(".mlp.") != std::string::npos;
    EXPECT_EQ(point.format_name(), mlp ? "q8_0>bf16" : "q8_0") << point.scope(p);
    EXPECT_TRUE(point.decided_by(p).starts_with(mlp ? "policy rule 1" : "policy line")) << point.scope(p);
  }
  EXPECT_EQ(points, 16U) << "7 layers in 2 blocks, the embedding and the head";
}

std::string error_of(const graph::Graph& graph, const std::string& line) {
  try {
    compile(graph, precision::Policy::parse(line), {16, 16}, {});
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

TEST(ServedWeights, NeedRowsOfWholeBlocks) {
  const graph::Graph narrow = model::build_log_prob(mantissa::testing::tiny_llama(false), 16, 16, true);
  EXPECT_EQ(
      error_of(narrow, "32-true weights=q4_0"),
      "model.embed_tokens.weight: weights=q4_0 needs rows of whole blocks of 32 elements, got rows of 16. Fix: a "
      "rule \"model.embed_tokens: weights=none\", or another format");
  EXPECT_EQ(error_of(narrow, "32-true weights=q4_0; *: weights=none"), "");
  EXPECT_EQ(error_of(wide_llama(), "32-true weights=nf4"), "");
}

}  // namespace
}  // namespace mantissa::plan::served_weights_test
