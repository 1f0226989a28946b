// The section [adapter], and the policy of a run with an adapter.
#include "mantissa/setup/config/adapter.h"

#include <gtest/gtest.h>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"
#include "setup/config/config_text.h"

namespace mantissa::config {
namespace {

RunConfig parsed(const std::string& adapter) {
  return parse_config(
      "[run]\nsteps = 1\n[model]\npath = \"m\"\n[data]\nsource = \"kk\"\n[adapter]\n" + adapter, "run.toml");
}

std::string refusal(const std::string& adapter) {
  return test::message_of<ConfigError>([&] { parsed(adapter); });
}

TEST(AdapterSection, APrintedConfigReadsBackAsItself) {
  for (const char* text : {"kind = \"lora\"\nrank = 3\nalpha = 0.5\ntarget = \"*.c_attn\"\nrslora = true\n",
                           "kind = \"lora\"\ndora = true\nbase = \"bf16\"\n",
                           "kind = \"lora\"\npath = \"there\"\nbase = \"f16\"\n", "kind = \"none\"\n"}) {
    const RunConfig config = parsed(text);
    EXPECT_EQ(parse_config(config.to_toml(), "printed.toml"), config) << config.to_toml();
  }
}

TEST(AdapterSection, RefusesKeysWithoutEffect) {
  EXPECT_TRUE(has(refusal("rank = 4\n"), "set adapter.kind = \"lora\""));
  EXPECT_TRUE(has(refusal("kind = \"lora\"\npath = \"p\"\nalpha = 4\n"), "adapter.path has its own"));
  EXPECT_TRUE(has(refusal("kind = \"lora\"\ntarget = []\n"), "must not be empty"));
  EXPECT_TRUE(has(refusal("kind = \"lara\"\n"), "did you mean \"lora\"?"));
  EXPECT_TRUE(has(refusal("kind = \"lora\"\nbase = \"nf5\"\n"), "did you mean \"nf4\"?"));
  EXPECT_TRUE(has(refusal("kind = \"lora\"\nalpha = 0\n"), "must be"));
  EXPECT_TRUE(has(refusal("kind = \"lora\"\ntarget = 3\n"), "must be"));
}

Scalar params(const precision::Policy& policy, std::string_view scope) {
  return policy.resolve({scope, "parameter", precision::Pass::forward, 0}).params;
}

constexpr const char* kBase = "model.layers.0.self_attn.q_proj";
constexpr const char* kA = "model.layers.0.self_attn.q_proj.lora_A";

TEST(AdapterPolicy, TheBaseHasItsFormatAndTheAdapterAtLeastF32) {
  AdapterSection adapter;
  adapter.kind = "lora";
  const auto of = [&](const char* policy) {
    return adapted_policy(precision::Policy::parse(policy), adapter);
  };
  EXPECT_EQ(params(of("bf16-true"), kBase), Scalar::bf16);
  EXPECT_EQ(params(of("bf16-true"), kA), Scalar::f32);
  const precision::Resolved update = of("bf16-true").resolve({kA, "update", precision::Pass::update, 0});
  EXPECT_EQ(update.optimizer, Scalar::f32);
  EXPECT_EQ(params(of("64-true"), kA), Scalar::f64);
  adapter.base = "bf16";
  EXPECT_EQ(params(of("bf16-mixed"), kBase), Scalar::bf16);
  EXPECT_EQ(params(of("bf16-mixed"), kA), Scalar::f32);
  EXPECT_EQ(params(of("64-true"), kBase), Scalar::bf16);
  EXPECT_EQ(params(of("64-true"), kA), Scalar::f64);
  adapter.kind = "none";
  EXPECT_EQ(params(of("bf16-mixed"), kBase), Scalar::f32);
}

TEST(AdapterPolicy, RulesApplyAfterItAndItIsNotPrinted) {
  AdapterSection adapter;
  adapter.kind = "lora";
  adapter.base = "bf16";
  const precision::Policy policy =
      precision::Policy::parse("bf16-mixed").with_rule("*.lora_A: params=f16", "--rule 1");
  const precision::Policy adapted = adapted_policy(policy, adapter);
  EXPECT_EQ(params(adapted, kA), Scalar::f16);
  EXPECT_EQ(params(adapted, kBase), Scalar::bf16);
  EXPECT_EQ(adapted.line(), policy.line());
  EXPECT_EQ(adapted.rules(), policy.rules());
  const std::string_view fields[] = {"params"};
  EXPECT_EQ(adapted.decided_by({kBase, "parameter"}, fields), "adapter.base");
  EXPECT_EQ(adapted.decided_by({kA, "parameter"}, fields), "--rule 1");
}

}  // namespace
}  // namespace mantissa::config
