// Parameter groups: precedence of their keys, and patterns that match nothing.
#include "mantissa/engine/optim/groups.h"

#include <gtest/gtest.h>

#include "mantissa/core/base/error.h"

namespace mantissa::optim::groups_test {
namespace {

const std::vector<std::string> kNames = {"model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                                         "model.layers.0.mlp.up_proj.weight",
                                         "model.layers.1.mlp.up_proj.weight", "lm_head.weight"};

TEST(Groups, TheLastMatchThatHasAKeyGivesIt) {
  const std::vector<Group> groups = {{.match = "*", .lr_scale = 0.5, .weight_decay = 0.2},
                                     {.match = "model.layers.0", .lr_scale = 0.25},
                                     {.match = "*norm*", .weight_decay = 0.0},
                                     {.match = "*.mlp.up_proj", .freeze = true, .quantize = QuantFormat::nf4},
                                     {.match = "model.layers.1.mlp", .freeze = false}};
  const GroupSettings norm = settings_of(groups, kNames[1]);
  EXPECT_EQ(norm.lr_scale, 0.25);
  EXPECT_EQ(norm.weight_decay, 0.0);
  EXPECT_FALSE(norm.freeze);
  EXPECT_TRUE(settings_of(groups, kNames[2]).freeze);
  EXPECT_FALSE(settings_of(groups, kNames[3]).freeze);
  EXPECT_EQ(settings_of(groups, kNames[2]).held_in(), QuantFormat::nf4);
  EXPECT_EQ(settings_of(groups, kNames[3]).held_in(), std::nullopt);  // trained after all
  EXPECT_EQ(settings_of(groups, kNames[4]).lr_scale, 0.5);
  EXPECT_EQ(settings_of({}, kNames[4]).weight_decay, std::nullopt);
}

std::string refused(const Group& group) {
  try {
    check_groups(std::span(&group, 1), kNames);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

TEST(Groups, APatternThatMatchesNothingIsAnErrorWithTheNearestName) {
  EXPECT_EQ(refused({.match = "model.layers.*.mlp", .lr_scale = 2}), "");
  EXPECT_EQ(refused({.match = "model.embed_tokens.weight"}), "");
  EXPECT_EQ(refused({.match = "model.embed_token", .lr_scale = 2, .origin = "run.toml:7"}),
            "run.toml:7: optimizer.group match = \"model.embed_token\" matches no parameter: did you mean "
            "\"model.embed_tokens\"?");
  EXPECT_NE(refused({.match = "zzzzzzzz", .origin = "run.toml:7"}).find("matches no parameter"),
            std::string::npos);
}

TEST(Groups, SomethingMustBeTrained) {
  EXPECT_NE(refused({.match = "*", .freeze = true}).find("freezes every parameter"), std::string::npos);
}

}  // namespace
}  // namespace mantissa::optim::groups_test
