// What is not there of a rule that speaks of nothing.
#include "mantissa/precision/coverage.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mantissa::precision {
namespace {

const std::vector<Place>& places() {
  static const std::vector<Place> all = {
      {"model.embed_tokens", "gather"},
      {"model.layers.0.self_attn.q_proj", "matmul", Pass::forward, {"input", "weight"}},
      {"model.layers.0.self_attn.q_proj", "matmul", Pass::backward, {"gradient", "weight"}},
      {"model.layers.0.self_attn", "attention"},
      {"model.layers.0.self_attn", "softmax"},
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
  EXPECT_EQ(why("layers.0.mlp.down_proj: compute=f32"), "did you mean \"*.layers.0.mlp.down_proj\"?");
  EXPECT_EQ(why("zzzzzzzzzzzz: compute=f32"), "");
}

TEST(Coverage, AnOpThatIsNotThereIsAnsweredWithTheNearest) {
  EXPECT_EQ(why("*: op=matmull compute=f32"),
            "the model has no op \"matmull\"; did you mean \"matmul\"? (ops: attention, gather, log_prob, "
            "matmul, rmsnorm, softmax)");
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
