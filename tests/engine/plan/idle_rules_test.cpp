// A rule is reported as idle exactly if the model computes the same bits without it.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "engine/plan/planned.h"
#include "engine/runtime/program.h"
#include "mantissa/engine/plan/rules.h"

namespace mantissa::plan::idle_rules_test {
namespace {

constexpr std::int64_t kTokens = 16, kVocabulary = 29;

graph::Graph tiny_graph() {
  return model::build_log_prob(mantissa::testing::tiny_llama(false, kVocabulary), kTokens, kTokens, true);
}

/// Returns log-probabilities and gradients of one batch under `policy`.
std::vector<std::vector<double>> numbers_under(const precision::Policy& policy) {
  const mantissa::testing::Segments rows({kTokens});
  const mantissa::testing::Compiled c(tiny_graph(), policy, mantissa::testing::options_for(rows));
  mantissa::testing::Data(kTokens, kVocabulary, 3).feed(c, 0, kTokens);
  mantissa::testing::train_step(c, rows.extent());
  std::vector<std::vector<double>> all = {c.values("log_prob", kTokens)};
  for (std::size_t s = 0; s < c.program.slots.size(); ++s)
    all.push_back(c.values(c.program.slots[s].gradient, c.count(s)));
  return all;
}

/// Compares the report on each rule of `base` with its effect on the numbers.
void check(const char* base, const std::vector<const char*>& idle, const std::vector<const char*>& others) {
  const auto policy = precision::Policy::parse(base);
  const std::vector<std::vector<double>> without = numbers_under(policy);
  const auto expect = [&](const char* text, bool is_idle) {
    const precision::Policy with = policy.with_rule(text, "rule");
    EXPECT_EQ(idle_rules(lowering_of(tiny_graph()), with).size(), is_idle ? 1U : 0U) << base << " " << text;
    EXPECT_EQ(numbers_under(with) == without, is_idle) << base << " " << text;
  };
  for (const char* rule : idle) expect(rule, true);
  for (const char* rule : others) expect(rule, false);
}

TEST(IdleRules, AreThoseWithoutWhichTheBitsAreTheSame) {
  check("bf16-mixed",
        {"model.embed_tokens: compute=f32", "model.norm: accumulate=f16", "*: op=rope accumulate=bf16",
         "*: accumulate_block=32", "*: op=gather compute=f16", "*: op=swiglu pass=backward compute=f32",
         "*: op=attention accumulate=e5m2 accumulate_block=8", "*: op=rmsnorm pass=backward compute=f16",
         "*: op=sum compute=f16", "*: op=softmax compute=f32", "lm_head: residual=bf16", "*.q_proj: kv=f16",
         "model.norm: output=bf16", "*.mlp: compute=bf16", "*: accumulate_order=tile",
         "*: op=matmul accumulate_order=auto", "*: op=rope accumulate_order=chain",
         "*: operand=weight accumulate_order=chain"},
        {"model.norm: compute=f32",
         "*: accumulate_order=chain",
         "lm_head: accumulate_order=chain",
         "*.up_proj: pass=backward accumulate_order=chain",
         "*: op=attention compute=f32",
         "*: op=attention pass=backward compute=f32",
         "*: op=softmax compute=bf16",
         "*: op=statistics compute=bf16",
         "*: op=angles compute=bf16",
         "*.mlp: compute=f16",
         "*: op=rope compute=f32",
         "*: op=swiglu compute=f32",
         "*: accumulate=f16",
         "lm_head: accumulate=f16",
         "*: op=matmul pass=backward compute=f32",
         "*: op=matmul operand=weight compute=f16",
         "lm_head: compute=f32",
         "lm_head: output=bf16",
         "*: op=log_prob pass=backward compute=f32",
         "*.self_attn: kv=e4m3",
         "*: op=add residual=bf16",
         "*: grads=bf16",
         "model.embed_tokens: params=bf16",
         "*: rounding=toward-zero"});
}

TEST(IdleRules, OfFactorsStoredLowerAreIdleIfTheOpComputesNone) {
  check("bf16-true",
        {"*: op=matmul pass=backward compute=f32", "lm_head: pass=forward operand=input compute=f32"},
        {"*.up_proj: compute=f32", "*: op=log_prob pass=backward compute=f32",
         "*: op=attention pass=backward compute=f32"});
}

TEST(IdleRules, OfTheOrderOfSumsAreIdleWhereNothingIsSummedInTiles) {
  check("64-true", {"*: accumulate_order=chain"}, {});
  check("tf32", {"*: accumulate_order=chain"}, {});
  check("bf16-matmul-x3", {"*: accumulate_order=tile"}, {"*.mlp: accumulate_order=chain"});
  check("32-true", {"*: accumulate_order=chain"}, {"*.mlp: accumulate_order=tile"});
  // Without this rule the policy is an error.
  const auto needed = precision::Policy::parse("bf16-mixed accumulate=f16 accumulate_block=33")
                          .with_rule("*: accumulate_order=chain", "rule");
  EXPECT_TRUE(idle_rules(lowering_of(tiny_graph()), needed).empty());
}

}  // namespace
}  // namespace mantissa::plan::idle_rules_test
