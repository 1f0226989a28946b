// Rules for single parameters: the formats of masters, gradients and copies, and what does not change.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "engine/model/tiny_families.h"
#include "engine/plan/planned.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/graphs.h"

namespace mantissa::plan::parameter_rules_test {
namespace {

graph::Graph tiny_rwkv() {
  const auto tiny = mantissa::testing::tiny_models(mantissa::testing::facts_of("rwkv7")).front();
  return model::build_log_prob(model::parse_model_config(tiny.config, tiny.name), 16, 16, true);
}

Program plan_of(const std::string& policy) {
  return compile(tiny_rwkv(), precision::Policy::parse(policy), {16, 16}, {});
}

/// The formats of masters and of gradients, by parameter.
std::map<std::string, std::pair<Scalar, Scalar>> formats_of(const Program& p) {
  std::map<std::string, std::pair<Scalar, Scalar>> formats;
  for (const Slot& s : p.slots) formats[s.name] = {s.master, p.buffer(s.gradient).type};
  return formats;
}

TEST(ParameterRules, GiveOneParameterOfAModuleItsFormats) {
  auto expected = formats_of(plan_of("32-true"));
  ASSERT_TRUE(expected.contains("model.layers.0.attn.k_k"));
  const auto got = formats_of(plan_of("32-true; *.attn.k_k: params=bf16 grads=f16; *.x_[wa]: grads=bf16"));
  for (auto& [name, formats] : expected) {
    if (name.ends_with(".attn.k_k")) formats = {Scalar::bf16, Scalar::f16};
    if (name.ends_with(".x_w") || name.ends_with(".x_a")) formats.second = Scalar::bf16;
  }
  EXPECT_EQ(got, expected);
}

TEST(ParameterRules, CopyOneParameterForReading) {
  const Program p = plan_of("32-true; *.attn.k_a: residual=bf16");
  for (const Slot& s : p.slots) EXPECT_EQ(s.copies.size(), s.name.ends_with(".k_a") ? 1U : 0U) << s.name;
  const PlanRow row = find_row(plan_rows(p), "model.layers.0.attn", "rwkv_keys");
  EXPECT_EQ(row.stored, "f32+bf16");
  EXPECT_EQ(row.decided_by, "policy rule 1");
}

TEST(ParameterRules, SelectAWeightOrABias) {
  auto expected = formats_of(plan_of("32-true"));
  const auto got = formats_of(plan_of("32-true; *norm.bias: params=bf16; model.norm.weight: params=f16"));
  for (auto& [name, formats] : expected) {
    if (name.ends_with("norm.bias")) formats.first = Scalar::bf16;
    if (name == "model.norm.weight") formats.first = Scalar::f16;
  }
  EXPECT_EQ(got, expected);
}

/// The meaning of rules before there were rules for parameters.
TEST(ParameterRules, ForModulesBelowAnotherLeaveItsOwnParameters) {
  for (const auto& [name, formats] : formats_of(plan_of("32-true; *.attn.*: params=bf16"))) {
    const std::size_t attn = name.find(".attn.");
    const bool below = attn != std::string::npos && name.find('.', attn + 6) != std::string::npos;
    EXPECT_EQ(formats.first, below ? Scalar::bf16 : Scalar::f32) << name;
  }
}

TEST(ParameterRules, ForOtherFieldsAreErrorsThatNameTheModule) {
  const Program p = plan_of("32-true; *.attn.k_k: compute=bf16");
  try {
    check_rules(p);
    FAIL() << "the rule matched";
  } catch (const ConfigError& e) {
    EXPECT_NE(
        std::string(e.what()).find("only params, grads, residual, optimizer, rounding and kahan can be set "
                                   "for a parameter; for other fields write \"model.layers.0.attn\""),
        std::string::npos)
        << e.what();
  }
}

TEST(ParameterRules, ThatSelectNothingAreErrors) {
  EXPECT_THROW(check_rules(plan_of("32-true; *.attn.k_q: params=bf16")), ConfigError);
  EXPECT_NO_THROW(check_rules(plan_of("32-true; *.attn.k_k: params=bf16")));
  EXPECT_NO_THROW(check_rules(plan_of("32-true; *.attn.k_k: grads=bf16")));
  EXPECT_NO_THROW(check_rules(plan_of("32-true; *.attn.k_k: residual=bf16")));
}

}  // namespace
}  // namespace mantissa::plan::parameter_rules_test
