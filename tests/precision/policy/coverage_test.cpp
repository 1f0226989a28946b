// The explanation of a rule that matches nothing.
#include "mantissa/precision/policy/coverage.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace mantissa::precision {
namespace {

const std::vector<Place>& places() {
  static const std::vector<Place> all = {
      {"model.embed_tokens", "gather"},
      {"model.layers.0.input_layernorm", "rmsnorm"},
      {"model.layers.1.input_layernorm", "rmsnorm"},
      {"model.layers.0.self_attn.q_proj", "matmul", Pass::forward, {"input", "weight"}},
      {"model.layers.0.self_attn.q_proj", "matmul", Pass::backward, {"gradient", "weight"}},
      {"model.layers.0.self_attn", "attention"},
      {"model.layers.0.self_attn", "softmax"},
      {"model.layers.1.self_attn", "attention"},
      {"model.layers.0.mlp", "swiglu"},
      {"model.layers.1.mlp", "swiglu"},
      {"model.layers.0.mlp.down_proj", "matmul", Pass::forward, {"input", "weight"}},
      {"model.layers.1.self_attn.q_proj", "matmul", Pass::forward, {"input", "weight"}},
      {"model.norm", "rmsnorm"},
      {"lm_head", "log_prob"},
  };
  return all;
}

std::string why(const char* rule) {
  return why_unmatched(Policy().with_rule(rule, "--rule 1").rules().front(), places());
}

TEST(Coverage, AnUnknownScopeGetsTheNearestAsASuggestion) {
  EXPECT_EQ(why("lm_haed: compute=f32"), "did you mean \"lm_head\"?");
  EXPECT_EQ(why("*.qproj: compute=f32"), "did you mean \"*.q_proj\"?");
  EXPECT_EQ(why("layers.0.mlp.down_proj: compute=f32"), "did you mean \"model.layers.0.mlp.down_proj\"?");
  EXPECT_EQ(why("zzzzzzzzzzzz: compute=f32"), "");
}

TEST(Coverage, AForeignScopeGetsItsLocalNameAsASuggestion) {
  for (const auto& [theirs, ours] : std::vector<std::pair<std::string, std::string>>{
           {"*.ln_f", "model.norm"},
           {"ln_f", "model.norm"},
           {"*.wte", "model.embed_tokens"},
           {"transformer.wte", "model.embed_tokens"},
           {"transformer.h.0.attn", "model.layers.0.self_attn"},
           {"transformer.h.*.attn", "model.layers.*.self_attn"},
           {"transformer.h.0.attn.c_attn", "model.layers.0.self_attn.q_proj"},
           {"transformer.h.0.mlp.c_proj", "model.layers.0.mlp.down_proj"},
           {"*.ln_1", "*.input_layernorm"},
           {"c_attn", "*.{q,k,v}_proj"},
           {"*.c_proj", "model.layers.0.mlp.down_proj"},
           {"layers.0.attention.wq", "model.layers.0.self_attn.q_proj"},
           {"layers.0.feed_forward.w2", "model.layers.0.mlp.down_proj"},
           {"tok_embeddings", "model.embed_tokens"},
           {"output", "lm_head"},
           {"blocks.0.att.receptance", "model.layers.0.self_attn.q_proj"},
           {"blocks.0.ffn", "model.layers.0.mlp"}}) {
    EXPECT_EQ(why((theirs + ": compute=f32").c_str()), "did you mean \"" + ours + "\"?") << theirs;
  }
}

TEST(Coverage, ACorrectionOfOnePartKeepsTheOthers) {
  EXPECT_EQ(why("*.mpl: compute=f32"), "did you mean \"*.mlp\"?");
  EXPECT_EQ(why("model.layers.*.mpl: compute=f32"), "did you mean \"model.layers.*.mlp\"?");
  EXPECT_EQ(why("model.layer.{0,1}.mlp: compute=f32"), "did you mean \"model.layers.{0,1}.mlp\"?");
}

TEST(Coverage, FieldsThatNoParameterHasBelongToItsModule) {
  EXPECT_EQ(
      why("model.layers.0.mlp.down_proj.weight: compute=f32"),
      "only params, grads, residual, optimizer, rounding and kahan can be set for a parameter; for other "
      "fields write \"model.layers.0.mlp.down_proj\"");
  const std::vector<Place> rwkv = {{"model.layers.0.attn", "rwkv_keys"},
                                   {"model.layers.0.attn.k_k", "update", Pass::update}};
  EXPECT_EQ(
      why_unmatched(Policy().with_rule("*.k_k: compute=f16", "").rules().front(), rwkv),
      "only params, grads, residual, optimizer, rounding and kahan can be set for a parameter; for other "
      "fields write \"model.layers.0.attn\"");
}

TEST(Coverage, AForeignOpGetsItsLocalNameAsASuggestion) {
  for (const auto& [theirs, ours] :
       std::vector<std::pair<std::string, std::string>>{{"linear", "matmul"},
                                                        {"layer_norm", "rmsnorm"},
                                                        {"norm", "rmsnorm"},
                                                        {"embedding", "gather"},
                                                        {"cross_entropy", "log_prob"},
                                                        {"loss", "log_prob"},
                                                        {"sdpa", "attention"}}) {
    const std::string message = why(("*: op=" + theirs + " compute=f32").c_str());
    EXPECT_NE(message.find("; did you mean \"" + ours + "\"?"), std::string::npos) << message;
  }
}

TEST(Coverage, AForeignOpMeansWhatTheModelHas) {
  const std::vector<Place> gpt2 = {{"transformer.h.0.ln_1", "layernorm"},
                                   {"transformer.h.0.attn.c_attn", "matmul"},
                                   {"transformer.h.0.mlp", "gelu_tanh"}};
  for (const auto& [theirs, ours] :
       std::vector<std::pair<std::string, std::string>>{{"layer_norm", "layernorm"},
                                                        {"rmsnorm", "layernorm"},
                                                        {"norm", "layernorm"},
                                                        {"gelu", "gelu_tanh"},
                                                        {"mlp", "gelu_tanh"}}) {
    const Policy policy = Policy::parse("32-true; *: op=" + theirs + " compute=f32");
    const std::string message = why_unmatched(policy.rules().front(), gpt2);
    EXPECT_NE(message.find("; did you mean \"" + ours + "\"?"), std::string::npos) << message;
  }
  EXPECT_NE(why("*: op=layernorm compute=f32").find("; did you mean \"rmsnorm\"?"), std::string::npos);
}

TEST(Coverage, AnUnknownOpGetsTheNearestAsASuggestion) {
  EXPECT_EQ(why("*: op=matmull compute=f32"),
            "the model has no op \"matmull\"; did you mean \"matmul\"? (ops: attention, gather, log_prob, "
            "matmul, rmsnorm, softmax, swiglu)");
  EXPECT_EQ(why("lm_head: op=attention compute=f32"), "the scope has no op \"attention\" (ops: log_prob)");
}

TEST(Coverage, AnUnmatchedPassOrOperandIsNamed) {
  EXPECT_EQ(why("model.norm: pass=backward compute=f32"), "the matching ops do not run in the backward pass");
  EXPECT_EQ(
      why("*.q_proj: operand=inputs compute=f32"),
      "the matching ops have no operand \"inputs\"; did you mean \"input\"? (operands: gradient, input, "
      "weight)");
  EXPECT_EQ(why("model.norm: operand=weight compute=f32"),
            "the matching ops have no operands that a rule can select");
}

}  // namespace
}  // namespace mantissa::precision
