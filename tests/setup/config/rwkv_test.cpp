// The keys of RWKV-LM's recipe: data.order, data.magic_prime, train.l2wrap.
#include <gtest/gtest.h>

#include <string>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/config/run_config.h"
#include "setup/config/config_text.h"

namespace mantissa::config {
namespace {

TEST(RwkvConfig, RwkvsOrderHoldsOutNothingUnlessAsked) {
  const std::string text = std::string(kSmallest) + "order = \"rwkv\"\n";
  EXPECT_EQ(parse_config(text, "run.toml").data.validation.share, 0);
  const RunConfig asked = parse_config(text + "validation = 0.1\n", "run.toml");
  EXPECT_EQ(asked.data.validation.share, 0.1);
  EXPECT_EQ(parse_config(asked.to_toml(), "run.toml"), asked);
}

TEST(RwkvConfig, EarlierStepsBelongToOneStreamOfSteps) {
  const RunConfig config = parse(kSmallest, {"run.earlier_steps=3"});
  EXPECT_EQ(config.run.earlier_steps, 3);
  EXPECT_EQ(parse_config(config.to_toml(), "run.toml"), config);
  EXPECT_EQ(message_of([] {
              parse(kSmallest, {"run.earlier_steps=3", "train.objective=rl"});
            }),
            "--set: run.earlier_steps = 3: expected 0 with train.objective = \"rl\". Fix: "
            "remove one of them");
  EXPECT_NE(message_of([] {
              parse(kSmallest, {"run.earlier_steps=3", "data.carry_state=true"});
            }).find("expected 0 with data.carry_state = true"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              parse(
                  "[run]\nearlier_steps = 3\n[[run.stage]]\nsteps = 1\n[model]\nconfig = \"c\"\n"
                  "[data]\nsource = \"a\"\n");
            }).find("run.earlier_steps = 3: expected 0 with [[run.stage]]"),
            std::string::npos);
}

TEST(RwkvConfig, RwkvsOrderIsOneOfPretrainingOnOneStream) {
  const auto with = [](const std::string& data) {
    return message_of([&] {
      parse("[run]\nsteps = 1\n[model]\nconfig = \"c\"\n[data]\nsource = [\"a\", \"b\"]\n" + data);
    });
  };
  EXPECT_EQ(
      with("order = \"rwkw\""),
      "dir/run.toml:7: data.order = \"rwkw\": unknown choice; did you mean \"rwkv\"? (choices: auto, rwkv)");
  EXPECT_EQ(
      with("magic_prime = 11"),
      "dir/run.toml:7: data.magic_prime = 11: only data.order = \"rwkv\" has a prime; set it, or remove the "
      "key");
  EXPECT_EQ(
      with("order = \"rwkv\"\nweights = [1, 2]"),
      "dir/run.toml:7: data.order = \"rwkv\": is an order of one stream, which data.weights divides; remove "
      "one of the keys");
  EXPECT_EQ(
      with("order = \"rwkv\"\nshuffle = false"),
      "dir/run.toml:8: data.shuffle = false: data.order = \"rwkv\" is an order of its own; remove one of the "
      "keys");
  EXPECT_EQ(
      with("order = \"rwkv\"\n[train]\nobjective = \"sft\""),
      "dir/run.toml:7: data.order = \"rwkv\": is an order of pretraining, but train.objective is \"sft\"; "
      "remove the key");
}

TEST(RwkvConfig, L2wrapAndZLossAreRegularizersOfPredictedTokens) {
  const auto with = [](const std::string& train) {
    return message_of([&] {
      parse_config("[run]\nsteps = 1\n[model]\nconfig = \"c\"\n[data]\nsource = \"a\"\n[train]\n" + train,
                   "dir/run.toml");
    });
  };
  EXPECT_NE(with("objective = \"dpo\"\nl2wrap = 1e-4")
                .find("is a regularizer of pretrain and sft, but train.objective is \"dpo\"; remove the key"),
            std::string::npos);
  EXPECT_NE(with("objective = \"dpo\"\nz_loss = 1e-4")
                .find("is a regularizer of pretrain and sft, but train.objective is \"dpo\"; remove the key"),
            std::string::npos);
  EXPECT_NE(with("objective = \"dpo\"\nrouter_aux_loss_coef = 1e-4")
                .find("is a regularizer of pretrain and sft, but train.objective is \"dpo\"; remove the key"),
            std::string::npos);
  EXPECT_NE(
      with("router_aux_loss_coef = -0.5").find("must be at least 0, or -1 for the weight of config.json"),
      std::string::npos);
  EXPECT_NE(with("l2wrap = -1").find("train.l2wrap = -1: must be at least 0"), std::string::npos);
}

}  // namespace
}  // namespace mantissa::config
