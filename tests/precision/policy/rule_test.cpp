// Rules: the uses that they match, and their order of precedence.
#include "mantissa/precision/policy/rule.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mantissa/precision/policy/policy.h"
#include "precision/policy/message.h"

namespace mantissa::precision {
namespace {

TEST(Rule, ShortFormNamesScopeAndFields) {
  const Rule rule = parse_rule("  model.layers.[0-3].self_attn.*:  compute=f32   kv=f16 ", "--rule 1");
  EXPECT_EQ(rule.match, "model.layers.[0-3].self_attn.*");
  EXPECT_EQ(rule.fields.compute, Scalar::f32);
  EXPECT_EQ(rule.fields.kv, Scalar::f16);
  EXPECT_EQ(rule.fields.params, std::nullopt);
  EXPECT_EQ(rule.origin, "--rule 1");
  EXPECT_EQ(rule.str(), "model.layers.[0-3].self_attn.*: compute=f32 kv=f16");
}

TEST(Rule, TableFormNamesOpPassOperandAndSteps) {
  const Rule rule = parse_rule(
      R"({match = "*norm*", op = "softmax", pass = "backward", operand = "a", steps = "0:500", compute = "f32", kahan = true})",
      "");
  EXPECT_EQ(rule.op, "softmax");
  EXPECT_EQ(rule.pass, Pass::backward);
  EXPECT_EQ(rule.operand, "a");
  EXPECT_EQ(rule.first_step, 0);
  EXPECT_EQ(rule.last_step, 500);
  EXPECT_EQ(rule.fields.kahan, true);
  EXPECT_EQ(
      rule.str(),
      R"({match = "*norm*", op = "softmax", pass = "backward", operand = "a", steps = "0:500", compute = "f32", kahan = true})");
  EXPECT_EQ(parse_rule(rule.str(), ""), rule);
}

TEST(Rule, ShortFormAcceptsTheSamePatterns) {
  EXPECT_EQ(parse_rule("*: op=softmax pass=forward steps=500: compute=f32", ""),
            parse_rule(R"({op = "softmax", pass = "forward", steps = "500:", compute = "f32"})", ""));
}

TEST(Rule, AScopeMayBeginWithAlternatives) {
  EXPECT_EQ(parse_rule("{q,k}_proj: compute=f32", "").match, "{q,k}_proj");
}

TEST(Rule, EqualityIgnoresTheOrigin) {
  EXPECT_EQ(parse_rule("*: compute=f32", "a"), parse_rule("*: compute=f32", "b"));
}

TEST(Rule, LaterRulesWin) {
  const Policy policy = Policy::parse("bf16-mixed")
                            .with_rule("model.layers.*: compute=f16 kv=f32", "run.toml:31")
                            .with_rule("*.down_proj: compute=f32", "--rule 1");
  const auto who_computes = [&](std::string_view scope) {
    static constexpr std::string_view kCompute[] = {"compute"};
    return policy.decided_by({.scope = scope, .op = "matmul"}, kCompute);
  };
  const Resolved up = policy.resolve({.scope = "model.layers.1.mlp.up_proj", .op = "matmul"});
  EXPECT_EQ(up.compute, Scalar::f16);
  EXPECT_EQ(up.kv, Scalar::f32);
  EXPECT_EQ(who_computes("model.layers.1.mlp.up_proj"), "run.toml:31");
  const Resolved down = policy.resolve({.scope = "model.layers.1.mlp.down_proj", .op = "matmul"});
  EXPECT_EQ(down.compute, Scalar::f32);
  EXPECT_EQ(down.kv, Scalar::f32);
  EXPECT_EQ(who_computes("model.layers.1.mlp.down_proj"), "--rule 1");
  const Resolved head = policy.resolve({.scope = "lm_head", .op = "log_prob"});
  EXPECT_EQ(head.compute, Scalar::bf16);
  EXPECT_EQ(who_computes("lm_head"), "bf16-mixed");
}

TEST(Rule, DecidedByNamesTheLastRuleThatSetsAnyOfTheFields) {
  const Policy policy = Policy::parse("compute=f16").with_rule("*: kv=f32", "--rule 1");
  static constexpr std::string_view kCompute[] = {"compute"}, kKv[] = {"kv", "compute"};
  EXPECT_EQ(policy.decided_by({.scope = "lm_head", .op = "log_prob"}, kCompute), "policy line");
  EXPECT_EQ(policy.decided_by({.scope = "lm_head", .op = "log_prob"}, kKv), "--rule 1");
}

TEST(Rule, ResolveReturnsEveryFieldOfThePolicy) {
  const Resolved r =
      Policy::parse(
          "params=f64 compute=tf32 accumulate=bf16 accumulate_block=32 accumulate_order=tile residual=f16 "
          "output=e5m2 grads=e4m3 optimizer=bf16 kv=f16 rounding=stochastic kahan=true saturate=true "
          "flush_subnormals=true scaling=current scale_margin=2 amax_history=16")
          .resolve({.scope = "x", .op = "y"});
  EXPECT_EQ(r.params, Scalar::f64);
  EXPECT_EQ(r.compute, Scalar::tf32);
  EXPECT_EQ(r.accumulator, Accumulator(Scalar::bf16, 32));
  EXPECT_EQ(r.accumulate_order, AccumulateOrder::tile);
  EXPECT_EQ(r.residual, Scalar::f16);
  EXPECT_EQ(r.output, Scalar::e5m2);
  EXPECT_EQ(r.grads, Scalar::e4m3);
  EXPECT_EQ(r.optimizer, Scalar::bf16);
  EXPECT_EQ(r.kv, Scalar::f16);
  EXPECT_EQ(r.rounding, Rounding::stochastic);
  EXPECT_TRUE(r.kahan && r.saturate && r.flush_subnormals);
  EXPECT_EQ(r.scaling, Scaling::current);
  EXPECT_EQ(r.scale_margin, 2);
  EXPECT_EQ(r.amax_history, 16);
}

TEST(Rule, WithStepsAppliesOnlyInThoseSteps) {
  const Policy policy = Policy::parse("bf16-mixed; *: steps=0:500 compute=f32; lm_head: steps=100: kv=f32");
  EXPECT_EQ(policy.changes(), (std::vector<std::int64_t>{100, 500}));
  EXPECT_EQ(policy.at_step(0).rules().size(), 1U);
  EXPECT_EQ(policy.at_step(99).resolve({}).compute, Scalar::f32);
  EXPECT_EQ(policy.at_step(100).rules().size(), 2U);
  EXPECT_EQ(policy.at_step(500).resolve({}).compute, Scalar::bf16);
  EXPECT_EQ(policy.at_step(1000000).rules().size(), 1U);
  EXPECT_TRUE(Policy::parse("bf16-mixed; *: compute=f32").changes().empty());
}

TEST(Rule, WithAnOperandAppliesOnlyToThatOperand) {
  const Policy policy = Policy::parse("bf16-mixed; *: operand=weight compute=tf32");
  const auto compute = [&](std::string_view operand) {
    return policy.resolve({.scope = "x", .op = "matmul", .operand = operand}).compute;
  };
  EXPECT_EQ(compute("weight"), Scalar::tf32);
  EXPECT_EQ(compute("input"), Scalar::bf16);
  EXPECT_EQ(compute(""), Scalar::bf16);
}

TEST(Rule, MatchesByScopeOpPassAndStep) {
  const Policy policy = Policy()
                            .with_rule("model.layers.5: compute=bf16", "")
                            .with_rule("*: op=attention compute=bf16", "")
                            .with_rule("*: pass=backward compute=bf16", "")
                            .with_rule("*: steps=10:20 compute=bf16", "");
  using Indices = std::vector<std::size_t>;
  EXPECT_EQ(policy.matching_rules({.scope = "model.layers.5.mlp.up_proj", .op = "matmul"}), Indices{0});
  EXPECT_EQ(policy.matching_rules({.scope = "model.layers.50.mlp", .op = "matmul"}), Indices{});
  EXPECT_EQ(policy.matching_rules({.scope = "x", .op = "attention"}), Indices{1});
  EXPECT_EQ(policy.matching_rules({.scope = "x", .op = "matmul", .pass = Pass::backward}), Indices{2});
  EXPECT_EQ(policy.matching_rules({.scope = "x", .op = "matmul", .step = 9}), Indices{});
  EXPECT_EQ(policy.matching_rules({.scope = "x", .op = "matmul", .step = 10}), Indices{3});
  EXPECT_EQ(policy.matching_rules({.scope = "x", .op = "matmul", .step = 20}), Indices{});
  EXPECT_EQ(policy.matching_rules(
                {.scope = "model.layers.5", .op = "attention", .pass = Pass::backward, .step = 15}),
            (Indices{0, 1, 2, 3}));
}

TEST(RuleErrors, NameTheMistakeAndTheCorrectForm) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"compute=f32",
       "rule \"compute=f32\": a rule is SCOPE: field=value, such as \"lm_head: compute=f32\"; write *: for "
       "every scope"},
      {"",
       "rule \"\": a rule is SCOPE: field=value, such as \"lm_head: compute=f32\"; write *: for "
       "every scope"},
      {"lm_head:",
       "rule \"lm_head:\": the rule for \"lm_head\" sets nothing; add a field, such as compute=f32"},
      {": compute=f32", "rule \": compute=f32\": scope pattern \"\": is empty; write * for every scope"},
      {"lm_head: compute f32",
       "rule \"lm_head: compute f32\": \"compute\" is not field=value; write it without spaces, such as "
       "compute=f32"},
      {"lm_head: loss_scale=128",
       "rule \"lm_head: loss_scale=128\": loss_scale belongs to the whole run; set it in the policy, not in "
       "a rule"},
      {"lm_head: checkpoint=bf16",
       "rule \"lm_head: checkpoint=bf16\": checkpoint belongs to the whole run; set it in the policy, not in "
       "a rule"},
      {"*: pass=foward compute=f32",
       "rule \"*: pass=foward compute=f32\": pass=\"foward\": unknown pass; did you mean "
       "\"forward\"? (passes: forward, backward, update)"},
      {"*: steps=500:0 compute=f32",
       "rule \"*: steps=500:0 compute=f32\": steps=\"500:0\": not a range of steps; write 0:500 for the "
       "first 500 steps, or 500: for all later steps"},
      {"*: op=mat*mul compute=f32",
       "rule \"*: op=mat*mul compute=f32\": op=\"mat*mul\": must be a name, such as matmul"},
      {"*: compute=f32 compute=f16",
       "rule \"*: compute=f32 compute=f16\": \"compute\" is set twice; keep one"},
      {"{match = 3, compute = \"f32\", op = [1]}",
       "rule \"{match = 3, compute = \"f32\", op = [1]}\": \"op\": must be a string, a number, true or "
       "false"},
      {"{match = \"*\"}",
       "rule \"{match = \"*\"}\": the rule for \"*\" sets nothing; add a field, such as compute=f32"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(message_of([&] { parse_rule(text, ""); }), message);
  EXPECT_NE(message_of([] { parse_rule("*: compte=f32", ""); })
                .find("a rule has no key \"compte\"; did you mean \"compute\"? (keys: match, op, pass, "
                      "operand, steps, params,"),
            std::string::npos);
  EXPECT_NE(message_of([] { parse_rule("{match = \"*\" compute}", ""); }).find("not a TOML inline table: "),
            std::string::npos);
  EXPECT_NE(message_of([] { parse_rule("{match = \"*\"}\nx = {}", ""); }).find("not one TOML inline table"),
            std::string::npos);
  for (const char* steps : {"", ":", "5", "-1:5", "a:b", "1:2:3", "5:5", "99999999999999999999:"}) {
    EXPECT_NE(message_of([&] {
                parse_rule(std::string("*: compute=f32 steps=") + steps, "");
              }).find("not a range of steps"),
              std::string::npos)
        << steps;
  }
}

TEST(RuleErrors, IncludeRulesBuiltInCode) {
  Rule rule;
  rule.match = "a[";
  rule.fields.compute = Scalar::f32;
  EXPECT_EQ(message_of([&] { (void)Policy().with_rule(rule); }),
            "scope pattern \"a[\": \"[\" is never closed; write a set as [0-3]");
}

}  // namespace
}  // namespace mantissa::precision
