// [optimizer]: the keys of each optimizer with their defaults, and parameter groups.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/config/run_config.h"
#include "setup/config/config_text.h"

namespace mantissa::config {
namespace {

std::string text_with(const std::string& optimizer) {
  return fmt::format("{}\n[optimizer]\n{}", kSmallest, optimizer);
}

RunConfig config_with(const std::string& optimizer) {
  return parse_config(text_with(optimizer), "dir/run.toml");
}

std::string refused(const std::string& optimizer) {
  try {
    config_with(optimizer);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

TEST(Optimizer, EachHasItsOwnKeysAndDefaults) {
  for (const optim::Optimizer* o : optim::all_optimizers()) {
    const bool constant = o->name == "schedule-free-adamw";
    const RunConfig c = config_with("name = \"" + std::string(o->name) + "\"" +
                                    (constant ? "\n[schedule]\nname = \"constant\"" : ""));
    EXPECT_EQ(c.optimizer.settings, optim::defaults(*o)) << o->name;
    const std::string printed = c.to_toml();
    for (const optim::SettingDef& def : o->settings)
      EXPECT_NE(printed.find("\n" + std::string(def.key) + " = "), std::string::npos)
          << o->name << ' ' << def.key;
    EXPECT_EQ(parse_config(printed, "dir/run.toml"), c) << o->name;
  }
  EXPECT_EQ(config_with("").optimizer.name, "adamw");
  EXPECT_EQ(config_with("name = \"sgd\"").to_toml().find("betas"), std::string::npos);
}

TEST(Optimizer, ReadsItsKeys) {
  const RunConfig c =
      config_with("name = \"muon\"\nmomentum = 0.9\nnesterov = false\nns_steps = 7\nbetas = [0.8, 0.9]");
  EXPECT_EQ(c.optimizer.settings.at("momentum"), optim::Setting(0.9));
  EXPECT_EQ(c.optimizer.settings.at("nesterov"), optim::Setting(false));
  EXPECT_EQ(c.optimizer.settings.at("ns_steps"), optim::Setting(std::int64_t{7}));
  EXPECT_EQ(c.optimizer.settings.at("betas"), optim::Setting(std::array{0.8, 0.9}));
}

TEST(Optimizer, RejectsKeysOfOthers) {
  EXPECT_EQ(refused("name = \"sgd\"\nbetas = [0.9, 0.95]"),
            "dir/run.toml:10: optimizer.betas = an array: sgd does not use this key (its keys: momentum, "
            "nesterov, weight_decay, ema_decay)");
  EXPECT_NE(refused("momentum = 0.9").find("adamw does not use this key"), std::string::npos);
  EXPECT_NE(
      refused("name = \"adagrad\"")
          .find("(choices: adamw, adam, sgd, lion, adafactor, muon, schedule-free-adamw, ademamix, adan)"),
      std::string::npos);
  EXPECT_NE(refused("name = \"sgd\"\nnesterov = true").find("needs a momentum"), std::string::npos);
  EXPECT_NE(refused("name = \"sgd\"\nmomentum = 1.0").find("must be at least 0 and below 1"),
            std::string::npos);
  EXPECT_NE(refused("name = \"muon\"\nns_steps = 0").find("must be at least 1"), std::string::npos);
}

TEST(Optimizer, ReadsAndPrintsGroups) {
  const RunConfig c = config_with(
      "[[optimizer.group]]\nmatch = \"*.norm*\"\nweight_decay = 0\n"
      "[[optimizer.group]]\nmatch = \"lm_head\"\nlr_scale = 0.5\nfreeze = true");
  ASSERT_EQ(c.optimizer.groups.size(), 2U);
  EXPECT_EQ(c.optimizer.groups[0], (optim::Group{"*.norm*", {}, 0.0, {}}));
  EXPECT_EQ(c.optimizer.groups[1], (optim::Group{"lm_head", 0.5, {}, true}));
  EXPECT_EQ(parse_config(c.to_toml(), "dir/run.toml"), c);
  const RunConfig frozen =
      config_with("[[optimizer.group]]\nmatch = \"*_proj\"\nfreeze = true\nquantize = \"nf4-double\"");
  EXPECT_EQ(frozen.optimizer.groups[0].quantize, QuantFormat::nf4_double);
  EXPECT_EQ(parse_config(frozen.to_toml(), "dir/run.toml"), frozen);
  const std::vector<std::string> overrides = {"optimizer.group=[{match = \"*\", lr_scale = 2}]"};
  EXPECT_EQ(parse_config(text_with(""), "dir/run.toml", overrides).optimizer.groups,
            (std::vector<optim::Group>{{"*", 2.0, {}, {}}}));
}

TEST(Optimizer, RejectsGroupsWithoutSettings) {
  EXPECT_NE(refused("[[optimizer.group]]\nlr_scale = 2").find("a group needs match"), std::string::npos);
  EXPECT_NE(refused("[[optimizer.group]]\nmatch = \"*\"\nlr = 2").find("unknown key \"lr\""),
            std::string::npos);
  EXPECT_NE(refused("[[optimizer.group]]\nmatch = \"*\"\nlr_scal = 2").find("did you mean \"lr_scale\"?"),
            std::string::npos);
  EXPECT_NE(refused("[[optimizer.group]]\nmatch = \"a{b\"").find("never closed"), std::string::npos);
  EXPECT_NE(refused("[[optimizer.group]]\nmatch = \"*\"\nlr_scale = -1").find("at least 0"),
            std::string::npos);
  EXPECT_NE(refused("[[optimizer.group]]\nmatch = \"*\"\nfreeze = 1").find("true or false"),
            std::string::npos);
  EXPECT_NE(refused("[[optimizer.group]]\nmatch = \"*\"\nquantize = \"nf4\"").find("needs freeze = true"),
            std::string::npos);
  EXPECT_NE(refused("[[optimizer.group]]\nmatch = \"*\"\nfreeze = true\nquantize = \"q4_0\"")
                .find("must be one of int8, nf4, nf4-double"),
            std::string::npos);
  EXPECT_NE(refused("group = 3").find("[[optimizer.group]]"), std::string::npos);
}

}  // namespace
}  // namespace mantissa::config
