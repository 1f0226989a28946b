// The forecast time of a step grows with the scores and logits that a soft cap bounds.
#include <gtest/gtest.h>

#include "mantissa/cost/forecast.h"
#include "runtime/program.h"

namespace mantissa::cost {
namespace {

constexpr std::int64_t kTokens = 48, kVocabulary = 64, kHeads = 4;

plan::Program gemma2(const nlohmann::json& caps) {
  nlohmann::json config = {{"model_type", "gemma2"},   {"vocab_size", kVocabulary},
                           {"hidden_size", 16},        {"intermediate_size", 24},
                           {"num_hidden_layers", 1},   {"num_attention_heads", kHeads},
                           {"num_key_value_heads", 2}, {"head_dim", 8},
                           {"sliding_window", 4096}};
  config.update(caps);
  plan::CompileOptions options{kTokens, kTokens};
  options.join_head = true;
  return plan::compile(
      model::build_log_prob(model::parse_model_config(config, "gemma2"), kTokens, kTokens, true),
      precision::Policy::parse("32-true"), options, {});
}

TEST(ForecastTime, CountsSoftCapsOfScoresAndLogits) {
  const plan::Program with = gemma2({{"attn_logit_softcapping", 50}, {"final_logit_softcapping", 30}});
  const plan::Program without =
      gemma2({{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}});
  const double scores = kHeads * kTokens * (kTokens + 1) / 2.0, logits = kTokens * kVocabulary;
  const Machine machine{1e9, 1e15};  // bounded by arithmetic
  ASSERT_EQ(with.steps.size(), without.steps.size());
  int capped = 0;
  for (std::size_t i = 0; i < with.steps.size(); ++i) {
    const plan::Step &a = with.steps[i], &b = without.steps[i];
    const bool attends = a.op->kind == graph::OpKind::attention, head = a.op->kind == graph::OpKind::head;
    EXPECT_EQ(b.capped, 0) << b.op->id;
    EXPECT_DOUBLE_EQ(a.capped, attends ? scores : head ? logits : 0.0) << a.op->id;
    EXPECT_EQ(a.flops, b.flops) << a.op->id;
    const double more = step_seconds(with, a, kTokens, machine) - step_seconds(without, b, kTokens, machine);
    if (attends || head) {
      ++capped;
      EXPECT_GT(more, a.capped / machine.flops_per_second) << a.op->id;
    } else {
      EXPECT_EQ(more, 0) << a.op->id;
    }
  }
  EXPECT_GE(capped, 3);
}

}  // namespace
}  // namespace mantissa::cost
