// Scope globs.
#include "mantissa/precision/policy/glob.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mantissa/precision/policy/policy.h"
#include "precision/policy/message.h"

namespace mantissa::precision {
namespace {

struct Case {
  const char* pattern;
  const char* scope;
  bool matches;
};

TEST(Glob, MatchesTheWholeScope) {
  const std::vector<Case> cases = {
      {"lm_head", "lm_head", true},
      {"lm_head", "lm_head2", false},
      {"lm_head", "my.lm_head", false},
      {"*", "", true},
      {"*", "model.norm", true},
      {"", "", true},
      {"", "x", false},
      {"*norm*", "model.layers.1.input_layernorm", true},
      {"*norm*", "model.layers.1.mlp", false},
      {"*.down_proj", "model.layers.11.mlp.down_proj", true},
      {"model.*.up_proj", "model.layers.1.mlp.up_proj", true},  // * crosses dots
      {"model.layers.?", "model.layers.1", true},
      {"model.layers.?", "model.layers.11", false},
      {"model.layers.[0-3].mlp", "model.layers.2.mlp", true},
      {"model.layers.[0-3].mlp", "model.layers.4.mlp", false},
      {"model.layers.[!0-3].mlp", "model.layers.4.mlp", true},
      {"model.layers.[!0-3].mlp", "model.layers.3.mlp", false},
      {"model.layers.[02-4]", "model.layers.0", true},
      {"model.layers.[02-4]", "model.layers.1", false},
      {"a[-]b", "a-b", true},
      {"a[]]b", "a]b", true},
      {"*.{q,k,v}_proj", "model.layers.1.self_attn.k_proj", true},
      {"*.{q,k,v}_proj", "model.layers.1.self_attn.o_proj", false},
      {"model.layers.{0,2-11}.mlp", "model.layers.0.mlp", true},
      {"model.layers.{0,2-11}.mlp", "model.layers.10.mlp", true},
      {"model.layers.{0,2-11}.mlp", "model.layers.1.mlp", false},
      {"model.layers.{0,2-11}.mlp", "model.layers.12.mlp", false},
      {"model.layers.{0,2-11}", "model.layers.110", false},
      {"{0-9}{0-9}", "00", true},
      {"{0-99}", "00", false},
      {"{a-b}", "a-b", true},
      {"{a,b{c,d}}e", "bde", true},
      {"{a,b{c,d}}e", "be", false},
      {"{a,}b", "b", true},
      {"{,*.}norm", "model.norm", true},
      {"{a*,b}c*", "axxcc", true},
      {"a[b", "a[b", true},  // an unclosed bracket matches itself
      {"a*b*c", "aXbXbXc", true},
  };
  for (const Case& c : cases)
    EXPECT_EQ(glob_match(c.pattern, c.scope), c.matches) << c.pattern << " on " << c.scope;
}

TEST(Glob, AScopePatternAlsoMatchesTheScopesBelow) {
  EXPECT_TRUE(scope_match("model.layers.5", "model.layers.5"));
  EXPECT_TRUE(scope_match("model.layers.5", "model.layers.5.mlp.up_proj"));
  EXPECT_TRUE(scope_match("model.layers.[0-3].self_attn", "model.layers.2.self_attn.q_proj"));
  EXPECT_FALSE(scope_match("model.layers.5", "model.layers.50"));
  EXPECT_FALSE(scope_match("model.layers.5.mlp", "model.layers.5"));
  EXPECT_FALSE(scope_match("layers.5", "model.layers.5"));
  EXPECT_FALSE(scope_match("", "model"));
}

TEST(Glob, APatternOfAParameterMatchesItsOwnName) {
  const std::vector<Case> cases = {
      {"*.attn.k_k", "model.layers.0.attn.k_k", true},
      {"*.k_k", "model.layers.0.attn.k_k", true},
      {"*.k_k", "model.layers.0.attn.k_a", false},
      {"*.attn.x_*", "model.layers.0.attn.x_w", true},
      {"*.attn.{x_w,k_?}", "model.layers.3.attn.k_a", true},
      {"{*.k_k,*.ffn.x_k}", "model.layers.3.ffn.x_k", true},
      {"*.norm.bias", "model.norm.bias", true},
      {"*.norm.{weight,bias}", "model.norm.bias", true},
      {"*.weight", "model.layers.0.mlp.up_proj.weight", true},
      {"*.norm.bias", "model.norm.weight", false},
      {"*", "model.layers.0.attn.k_k", false},         // modules,
      {"*.attn.*", "model.layers.0.attn.k_k", false},  // those below one,
      {"*.attn", "model.layers.0.attn.k_k", false},    // or one
      {"model.*.*", "model.norm.weight", false},
      {"*.w*", "transformer.h.0.attn.c_attn.weight", false},  // transformer.wte and wpe
      {"*t", "model.norm.weight", false},
      {"*.b?as*", "model.norm.bias", false},
      {"lm_head", "lm_head", false},
  };
  for (const Case& c : cases)
    EXPECT_EQ(tensor_match(c.pattern, c.scope), c.matches) << c.pattern << " on " << c.scope;
}

TEST(Glob, TheScopeOfAParameterNamesItUnlessItsNameIsCommon) {
  EXPECT_EQ(rule_scope("model.layers.0.attn.k_k"), "model.layers.0.attn.k_k");
  EXPECT_EQ(rule_scope("model.layers.0.attn.w_lora.lora.2.bias"), "model.layers.0.attn.w_lora.lora.2");
  EXPECT_EQ(rule_scope("model.norm.weight"), "model.norm");
  EXPECT_EQ(rule_scope("alone"), "alone");
}

TEST(Glob, TakesPolynomialTimeOnHostilePatterns) {
  std::string pattern;
  for (int i = 0; i < 60; ++i) pattern += "{a,a*}*";
  EXPECT_FALSE(glob_match(pattern + "b", std::string(300, 'a')));
  EXPECT_TRUE(glob_match(pattern, std::string(300, 'a')));
}

TEST(Glob, RejectsMalformedPatterns) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "scope pattern \"\": is empty; write * for every scope"},
      {"a[0-3", "scope pattern \"a[0-3\": \"[\" is never closed; write a set as [0-3]"},
      {"a{b,c", "scope pattern \"a{b,c\": \"{\" is never closed; write alternatives as {a,b}"},
      {"a}", "scope pattern \"a}\": \"}\" has no \"{\" before it; write alternatives as {a,b}"},
      {"a,b",
       "scope pattern \"a,b\": no scope contains \",\"; patterns are made of names, dots, * ? [0-3] {a,b}"},
      {"a b",
       "scope pattern \"a b\": no scope contains \" \"; patterns are made of names, dots, * ? [0-3] {a,b}"},
      {"a[ ]", "scope pattern \"a[ ]\": \" \" is not allowed in a set"},
      {"{{{{{{{{{a}}}}}}}}}", "scope pattern \"{{{{{{{{{a}}}}}}}}}\": braces are nested more than 8 deep"},
  };
  for (const auto& [pattern, message] : cases) EXPECT_EQ(message_of([&] { check_glob(pattern); }), message);
  for (const char* fine :
       {"*", "lm_head", "transformer.h.[0-3].attn.*", "{q,k}_proj", "blocks.1.att-x", "a[!0-3]"}) {
    EXPECT_NO_THROW(check_glob(fine)) << fine;
  }
}

}  // namespace
}  // namespace mantissa::precision
