// Keys of PEFT, Lit-GPT and OpenRLHF in a config.
#include "mantissa/setup/config/aliases.h"

#include <gtest/gtest.h>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"
#include "mantissa/setup/config/unknown.h"
#include "setup/config/config_text.h"

namespace mantissa::config {
namespace {

constexpr const char* kAliased = "[run]\nsteps = 9\n[model]\npath = \"m\"\n[data]\nsource = \"kk\"\n";

struct WithAliases {
  RunConfig config;
  Told told;
};

WithAliases with_aliases(const std::string& more, const Strings& overrides = {}) {
  WithAliases r;
  r.config = parse_config(std::string(kAliased) + more, "dir/run.toml", overrides, {}, &r.told);
  EXPECT_EQ(parse_config(r.config.to_toml(), "printed.toml"), r.config) << r.config.to_toml();
  return r;
}

std::string alias_refusal(const std::string& more, const Strings& overrides = {}) {
  return test::message_of<ConfigError>([&] { with_aliases(more, overrides); });
}

TEST(Aliases, OfLoraMakeAnAdapter) {
  const WithAliases r = with_aliases(
      "[adapter]\nlora_r = 4\nlora_alpha = 32\nlora_dropout = 0.05\nquantize = \"bnb.nf4-dq\"\n"
      "target_modules = [\"q_proj\", \"self_attn.o_proj\"]\n");
  EXPECT_EQ(r.config.adapter.kind, "lora");
  EXPECT_EQ(r.config.adapter.rank, 4);
  EXPECT_EQ(r.config.adapter.alpha, 32);
  EXPECT_EQ(r.config.adapter.base, "nf4-double");
  EXPECT_EQ(r.config.adapter.target, (Strings{"*.q_proj", "*.self_attn.o_proj"}));
  EXPECT_EQ(
      r.told.notes,
      (Strings{"run.toml:8: lora_r sets adapter.rank = 4", "run.toml:9: lora_alpha sets adapter.alpha = 32",
               "run.toml:10: lora_dropout sets adapter.dropout = 0.05",
               "run.toml:11: quantize sets adapter.base = \"nf4-double\"",
               "run.toml:12: target_modules sets adapter.target = [\"*.q_proj\", \"*.self_attn.o_proj\"]",
               "run.toml:8: lora_r sets adapter.kind = \"lora\""}));
  EXPECT_EQ(with_aliases("[adapter]\nkind = \"lora\"\nlora_rank = 4\n").config.adapter.rank, 4);
  EXPECT_EQ(with_aliases("", {"lora_r=4"}).config.adapter.rank, 4);
  EXPECT_EQ(with_aliases("", {"adapter.lora_r=4"}).config.adapter.rank, 4);
}

TEST(Aliases, AllLinearIsEveryLinearLayer) {
  for (const char* text : {"[adapter]\nkind = \"lora\"\ntarget = \"all-linear\"\n",
                           "[adapter]\ntarget_modules = \"all-linear\"\n"}) {
    const WithAliases r = with_aliases(text);
    EXPECT_EQ(r.config.adapter.target, Strings{"*"});
    EXPECT_TRUE(
        has(r.told.notes.back(), "adapter.target \"all-linear\" is \"*\", all linear layers but the head"))
        << r.told.notes.back();
  }
}

TEST(Aliases, OfOpenRlhfSetTheKeysOfRl) {
  const WithAliases r = with_aliases(
      "[train]\nobjective = \"rl\"\nactor_learning_rate = 5e-7\n[rl]\nclip_eps = 0.3\n"
      "generate_max_len = 77\nrollout_batch_size = 6\n");
  EXPECT_EQ(r.config.optimizer.lr, 5e-7);
  EXPECT_EQ(r.config.rl.clip_low, 0.3);
  EXPECT_EQ(r.config.rl.clip_high, 0.3);
  EXPECT_EQ(r.config.rl.max_new_tokens, 77);
  EXPECT_EQ(r.config.rl.prompts_per_step, 6);
  EXPECT_TRUE(has(r.told.notes[1], "clip_eps sets rl.clip_low = 0.3 and rl.clip_high = 0.3"))
      << r.told.notes[1];
}

TEST(Aliases, TheLastOfOverridesCounts) {
  EXPECT_EQ(with_aliases("[optimizer]\nlr = 1.0\n", {"actor_learning_rate=2.0"}).config.optimizer.lr, 2);
  EXPECT_EQ(with_aliases("", {"actor_learning_rate=2.0", "actor_learning_rate=3.0"}).config.optimizer.lr, 3);
  EXPECT_EQ(with_aliases("actor_learning_rate = 1.0\n", {"actor_learning_rate=2.0"}).config.optimizer.lr, 2);
}

TEST(Aliases, TwoNamesOfOneKeyAmongOverridesAreAnError) {
  const std::string expected =
      "--set: clip_eps sets rl.clip_low, as --set rl.clip_low does. Fix: keep one of them";
  EXPECT_EQ(alias_refusal("", {"clip_eps=0.3", "rl.clip_low=0.1"}), expected);
  EXPECT_EQ(alias_refusal("", {"rl.clip_low=0.1", "clip_eps=0.3"}), expected);
  EXPECT_EQ(alias_refusal("", {"clip_eps=0.3", "eps_clip=0.1"}),
            "--set: eps_clip sets rl.clip_low, as --set clip_eps does. Fix: keep one of them");
}

TEST(Aliases, NotesNameOnlyWhatNoOverrideReplaces) {
  const char* text = "[rl]\nclip_eps = 0.3\n";
  WithAliases r = with_aliases(text, {"rl.clip_low=0.1"});
  EXPECT_EQ(r.config.rl.clip_low, 0.1);
  EXPECT_EQ(r.config.rl.clip_high, 0.3);
  EXPECT_EQ(r.told.notes.front(), "run.toml:8: clip_eps sets rl.clip_high = 0.3");
  r = with_aliases(text, {"rl.clip_low=0.1", "rl.clip_high=0.1"});
  for (const std::string& note : r.told.notes) EXPECT_FALSE(has(note, "clip_eps")) << note;
}

TEST(Aliases, OfRlOutsideItsSectionDoNotChangeTheObjective) {
  const WithAliases r = with_aliases("", {"rollout_batch_size=8", "clip_eps=0.3"});
  EXPECT_EQ(r.config.train.objective, "pretrain");
  EXPECT_EQ(r.told.warnings,
            (Strings{"--set: rollout_batch_size (rl.prompts_per_step) has no effect: train.objective is "
                     "\"pretrain\". Fix: set train.objective = \"rl\", or remove the key",
                     "--set: clip_eps (rl.clip_low) has no effect: train.objective is \"pretrain\". Fix: set "
                     "train.objective = \"rl\", or remove the key"}));
  EXPECT_EQ(with_aliases("[rl]\nclip_eps = 0.3\n").config.train.objective, "rl");
  EXPECT_EQ(with_aliases("", {"rl.clip_eps=0.3"}).config.rl.clip_high, 0.3);
}

TEST(Aliases, WhoseValueCannotBeHonouredAreErrors) {
  EXPECT_EQ(alias_refusal("[adapter]\nlora_r = 4\nlora_dropout = 1\n")
                .find("dir/run.toml:9: lora_dropout (adapter.dropout) = 1: must be"),
            0U);
  EXPECT_EQ(alias_refusal("[adapter]\nkind = \"lora\"\nquantize = \"bnb.fp4\"\n"),
            "dir/run.toml:9: quantize = \"bnb.fp4\": expected bnb.nf4, bnb.nf4-dq or bnb.int8-training. Fix: "
            "adapter.base = \"nf4\", \"nf4-double\" or \"int8\"");
  EXPECT_TRUE(has(alias_refusal("", {"target_modules=.*_proj"}),
                  "--set: target_modules = \".*_proj\": expected names of "));
  EXPECT_EQ(alias_refusal("[adapter]\nlora_r = 0\n")
                .find("dir/run.toml:8: lora_r (adapter.rank) = 0: must be at least 1"),
            0U);
  EXPECT_TRUE(has(alias_refusal("[adapter]\nquantize = \"bnb.nf4\"\n"), "set adapter.kind = \"lora\""));
  EXPECT_EQ(alias_refusal("[adapter]\nrank = 8\nlora_r = 4\n"),
            "dir/run.toml:9: lora_r sets adapter.rank, as dir/run.toml:8 does. Fix: keep one of them");
  EXPECT_TRUE(has(alias_refusal("[adapter]\nlora_r = 8\nlora_rank = 4\n"), "Fix: keep one of them"));
}

TEST(Aliases, AreKnownToSuggestions) {
  EXPECT_EQ(find_key("lora-r").name, "adapter.rank");
  for (const std::string_view name : alias_names()) {
    const std::string key = key_of_alias(name);
    bool known = key.empty();
    for (const OptionInfo& o : options()) known = known || o.section + "." + o.key == key;
    EXPECT_TRUE(known) << name;
  }
}

}  // namespace
}  // namespace mantissa::config
