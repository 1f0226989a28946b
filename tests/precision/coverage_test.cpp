// Rules that speak of nothing are found before anything runs.
#include "mantissa/precision/coverage.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "precision/message.h"

namespace mantissa::precision {
namespace {

const std::vector<Place>& places() {
  static const std::vector<Place> all = {
      {"model.embed_tokens", "gather"},
      {"model.layers.0.self_attn.q_proj", "matmul"},
      {"model.layers.0.self_attn", "attention"},
      {"model.layers.0.mlp.down_proj", "matmul"},
      {"model.layers.1.self_attn.q_proj", "matmul"},
      {"model.norm", "rmsnorm"},
      {"lm_head", "log_prob"},
  };
  return all;
}

std::string refused(const char* rule) {
  return message_of([&] { check_rules_match(Policy().with_rule(rule, "--rule 1"), places()); });
}

TEST(Coverage, RulesThatMatchSomethingPass) {
  for (const char* rule :
       {"*: compute=bf16", "lm_head: compute=f32", "*: op=attention compute=f32",
        "model.layers.0: compute=f32", "*.q_proj: pass=backward compute=f32", "*: steps=900: compute=f32"}) {
    EXPECT_NO_THROW(check_rules_match(Policy().with_rule(rule, ""), places())) << rule;
  }
}

TEST(Coverage, AScopeThatIsNotThereIsAnsweredWithTheNearest) {
  EXPECT_EQ(refused("lm_haed: compute=f32"),
            "rule \"lm_haed: compute=f32\" (--rule 1): \"lm_haed\" matches nothing in the model; did you "
            "mean \"lm_head\"?");
  EXPECT_EQ(refused("*.qproj: compute=f32"),
            "rule \"*.qproj: compute=f32\" (--rule 1): \"*.qproj\" matches nothing in the model; did you "
            "mean \"*.q_proj\"?");
  EXPECT_EQ(refused("layers.0.mlp.down_proj: compute=f32"),
            "rule \"layers.0.mlp.down_proj: compute=f32\" (--rule 1): \"layers.0.mlp.down_proj\" matches "
            "nothing in the model; did you "
            "mean \"*.layers.0.mlp.down_proj\"?");
  EXPECT_EQ(refused("zzzzzzzzzzzz: compute=f32"),
            "rule \"zzzzzzzzzzzz: compute=f32\" (--rule 1): \"zzzzzzzzzzzz\" matches nothing in the model; "
            "`mantissa explain` lists the "
            "scopes");
}

TEST(Coverage, AnOpThatIsNotThereIsAnsweredWithTheNearest) {
  EXPECT_EQ(refused("*: op=matmull compute=f32"),
            "rule \"{match = \"*\", op = \"matmull\", compute = \"f32\"}\" (--rule 1): the model has no op "
            "\"matmull\"; did you mean "
            "\"matmul\"? (ops: attention, gather, log_prob, matmul, rmsnorm)");
  EXPECT_EQ(refused("lm_head: op=attention compute=f32"),
            "rule \"{match = \"lm_head\", op = \"attention\", compute = \"f32\"}\" (--rule 1): \"lm_head\" "
            "has no op \"attention\" (it "
            "has log_prob)");
}

}  // namespace
}  // namespace mantissa::precision
