// The forecast time of a step grows with the scores and logits that a soft cap bounds.
#include <gtest/gtest.h>

#include "engine/runtime/program.h"
#include "mantissa/setup/forecast/forecast.h"

namespace mantissa::forecast {
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

TEST(ForecastTime, TakesTheMeasuredRateOfAProduct) {
  const plan::Program program = gemma2(nlohmann::json::object());
  for (const plan::Step& s : program.steps) {
    const std::optional<plan::StepProduct> product = plan::product_of(program, s);
    if (!product || product->kernel != kernels::ProductKernel::packed) continue;
    const auto seconds = [&](double rate) {
      return step_seconds(program, s, kTokens, {1e9, 1e15, {{product->stored, rate}}});
    };
    EXPECT_NEAR(seconds(1e6) - seconds(2e6), s.executed_flops / 2e6, 1e-6 * s.executed_flops / 2e6)
        << s.op->id;
  }
}

TEST(ForecastTime, TheShareOfPeakIsThatOfTheUnits) {
  const plan::Program program = gemma2(nlohmann::json::object());
  const auto device = runtime::cpu({});
  const Machine one{1e9, 1e15}, two{2e9, 1e15};
  EXPECT_GT(seconds_at_peak(program, one, *device), 0);
  EXPECT_DOUBLE_EQ(seconds_at_peak(program, one, *device), 2 * seconds_at_peak(program, two, *device));
}

TEST(MeasureMachine, MeasuresEveryPackedProductAndItsUnit) {
  const auto device = runtime::cpu({.simd = kernels::best_simd()});
  for (const char* policy : {"32-true", "bf16-mixed", "bf16-mixed compute=mxfp8", "fp8-hybrid"}) {
    const plan::Program program =
        plan::compile(model::build_log_prob(mantissa::testing::tiny_llama(false), 128, 128, true),
                      precision::Policy::parse(policy), {128, 128}, {});
    const Machine machine =
        measure_machine(*device, program, program.memory.arena() + program.memory.weights());
    ASSERT_EQ(machine.products.size(), plan::packed_products(program).size());
    for (const ProductRate& rate : machine.products) {
      EXPECT_GT(rate.flops_per_second, 0) << policy;
      EXPECT_GT(machine.peak_of(unit_on(*device, {rate.product}).id), 0) << policy;
    }
  }
}

}  // namespace
}  // namespace mantissa::forecast
