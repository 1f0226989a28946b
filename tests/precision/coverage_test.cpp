// What is not there of a rule that speaks of nothing.
#include "mantissa/precision/coverage.h"

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

TEST(Coverage, AScopeThatIsNotThereIsAnsweredWithTheNearest) {
  EXPECT_EQ(why("lm_haed: compute=f32"), "did you mean \"lm_head\"?");
  EXPECT_EQ(why("*.qproj: compute=f32"), "did you mean \"*.q_proj\"?");
  EXPECT_EQ(why("layers.0.mlp.down_proj: compute=f32"), "did you mean \"model.layers.0.mlp.down_proj\"?");
  EXPECT_EQ(why("zzzzzzzzzzzz: compute=f32"), "");
}

TEST(Coverage, AScopeOfAnotherSystemIsAnsweredWithTheOneHere) {
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

TEST(Coverage, ASlipInOnePartLeavesTheOthersAsTheyAre) {
  EXPECT_EQ(why("*.mpl: compute=f32"), "did you mean \"*.mlp\"?");
  EXPECT_EQ(why("model.layers.*.mpl: compute=f32"), "did you mean \"model.layers.*.mlp\"?");
  EXPECT_EQ(why("model.layer.{0,1}.mlp: compute=f32"), "did you mean \"model.layers.{0,1}.mlp\"?");
}

TEST(Coverage, AWeightIsNoPartOfAScope) {
  EXPECT_EQ(why("model.layers.0.mlp.down_proj.weight: compute=f32"),
            "\".weight\" is no part of a scope; write \"model.layers.0.mlp.down_proj\"");
}

TEST(Coverage, AnOpOfAnotherSystemIsAnsweredWithTheOneHere) {
  for (const auto& [theirs, ours] :
       std::vector<std::pair<std::string, std::string>>{{"linear", "matmul"},
                                                        {"layer_norm", "rmsnorm"},
                                                        {"norm", "rmsnorm"},
                                                        {"embedding", "gather"},
                                                        {"cross_entropy", "log_prob"},
                                                        {"loss", "log_prob"},
                                                        {"sdpa", "attention"}}) {
    const std::string said = why(("*: op=" + theirs + " compute=f32").c_str());
    EXPECT_NE(said.find("; did you mean \"" + ours + "\"?"), std::string::npos) << said;
  }
}

TEST(Coverage, AnOpThatIsNotThereIsAnsweredWithTheNearest) {
  EXPECT_EQ(why("*: op=matmull compute=f32"),
            "the model has no op \"matmull\"; did you mean \"matmul\"? (ops: attention, gather, log_prob, "
            "matmul, rmsnorm, softmax, swiglu)");
  EXPECT_EQ(why("lm_head: op=attention compute=f32"), "there is no op \"attention\" (but log_prob)");
}

TEST(Coverage, APassOrAnOperandThatIsNotThereIsNamed) {
  EXPECT_EQ(why("model.norm: pass=backward compute=f32"), "it has no part in the backward pass");
  EXPECT_EQ(why("*.q_proj: operand=inputs compute=f32"),
            "no product there has an operand \"inputs\"; did you mean \"input\"? (operands: gradient, input, "
            "weight)");
  EXPECT_EQ(why("model.norm: operand=weight compute=f32"),
            "no product is there whose factors a rule could tell apart");
}

}  // namespace
}  // namespace mantissa::precision
