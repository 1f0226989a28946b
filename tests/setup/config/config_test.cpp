// The config: reading, defaults, and printing.
#include "mantissa/setup/config/run_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "mantissa/core/base/words.h"
#include "mantissa/setup/config/post_training.h"
#include "mantissa/setup/config/schedule.h"
#include "setup/config/config_text.h"

namespace mantissa::config {
namespace {

TEST(Config, NeedsOnlyStepsModelAndData) {
  const RunConfig c = parse(kSmallest);
  EXPECT_EQ(c.run.name, "run");
  EXPECT_EQ(c.run.out, "runs/run");
  EXPECT_EQ(c.run.seed, 1U);
  EXPECT_EQ(c.run.steps, 300);
  EXPECT_EQ(c.run.threads, 0);
  EXPECT_EQ(c.model.fields, nlohmann::json({{"hidden_size", 64}}));
  EXPECT_EQ(c.data.source, Strings{"kk"});
  EXPECT_EQ(c.data.format, "auto");
  EXPECT_EQ(c.data.tokenizer, "byte");
  EXPECT_EQ(c.data.sequence_length, 256);
  EXPECT_TRUE(c.data.shuffle);
  EXPECT_EQ(c.data.order, "auto");
  EXPECT_EQ(c.data.magic_prime, 0);
  EXPECT_EQ(c.train.l2wrap, 0);
  EXPECT_EQ(c.data.validation.share, 0.02);
  EXPECT_TRUE(c.data.validation.files.empty());
  EXPECT_EQ(c.train.objective, "pretrain");
  EXPECT_EQ(c.batch, (BatchSection{32, 8, 1, 1}));
  const optim::Settings adamw{
      {"betas", std::array{0.9, 0.95}}, {"eps", 1e-8}, {"weight_decay", 0.1}, {"ema_decay", 0.0}};
  EXPECT_EQ(c.optimizer, (OptimizerSection{"adamw", 3e-4, adamw, 1.0}));
  EXPECT_EQ(c.schedule, (ScheduleSection{.name = "cosine", .warmup_steps = 20, .min_lr_ratio = 0.1}));
  EXPECT_EQ(c.policy, precision::Policy());
  EXPECT_EQ(c.checkpoint, (CheckpointSection{100, 2}));
  EXPECT_EQ(c.log, (LogSection{1, true}));
}

TEST(Config, ReadsEveryKey) {
  const RunConfig c = parse(kFull);
  EXPECT_EQ(c.run, (RunSection{"demo", "runs/demo", 7, 300, 2}));
  EXPECT_EQ(c.model.fields["intermediate_size"], 688);
  EXPECT_EQ(c.model.fields["rope_theta"], 10000.0);
  EXPECT_EQ(c.model.fields["tie_word_embeddings"], true);
  EXPECT_EQ(c.model.fields["rope_scaling"]["odd key"], nlohmann::json({1, 2.5, "x", true}));
  EXPECT_EQ(c.data.source, (Strings{here("dir/a.txt"), here("dir/more/*.txt")}));
  EXPECT_EQ(c.data.validation.files, Strings{here("dir/held.txt")});
  EXPECT_EQ(c.data.sequence_length, 128);
  EXPECT_FALSE(c.data.shuffle);
  EXPECT_EQ(c.batch, (BatchSection{24, 6, 2, 2}));
  const optim::Settings settings{
      {"betas", std::array{0.9, 0.99}}, {"eps", 1e-18}, {"weight_decay", 0.0}, {"ema_decay", 0.0}};
  EXPECT_EQ(c.optimizer, (OptimizerSection{"adamw", 1e-3, settings, 0}));
  EXPECT_EQ(
      c.schedule,
      (ScheduleSection{
          .name = "wsd", .warmup_steps = 0, .min_lr_ratio = 0.25, .decay_steps = 3, .decay = "linear"}));
  EXPECT_EQ(c.policy, precision::Policy::parse(
                          "bf16-mixed residual=bf16; lm_head: compute=f32; *norm*: op=rmsnorm compute=f32"));
  EXPECT_EQ(c.checkpoint, (CheckpointSection{50, 3}));
  EXPECT_EQ(c.log, (LogSection{10, false}));
}

TEST(Config, PrintsAConfigThatReadsBackEqual) {
  for (const char* text : {kSmallest, kFull}) {
    const RunConfig c = parse(text);
    const std::string toml = c.to_toml();
    EXPECT_EQ(parse_config(toml, "elsewhere/config.toml"), c) << toml;
    EXPECT_EQ(parse_config(toml, "elsewhere/config.toml").to_toml(), toml);
  }
  const RunConfig odd = parse(
      kSmallest, {R"(run.name="quote \" back\\slash \u0001 ünï")", "optimizer.lr=0.1234567890123456789"});
  EXPECT_EQ(parse_config(odd.to_toml(), "x.toml"), odd) << odd.to_toml();
}

TEST(Config, PrintsTheFieldsOfThePreset) {
  const std::string toml = parse(kSmallest, {"precision.policy=bf16"}).to_toml();
  EXPECT_NE(toml.find("policy = \"params=f32 compute=bf16 "), std::string::npos) << toml;
  EXPECT_NE(toml.find("\"  # bf16-mixed\nrules = []\n"), std::string::npos) << toml;
  EXPECT_EQ(toml.find("loss_scale]"), std::string::npos) << toml;
}

TEST(Config, RulesKnowTheLineTheyStandOn) {
  const RunConfig c = parse(kFull);
  EXPECT_EQ(c.policy.rules()[0].origin, "run.toml:54");
  EXPECT_EQ(c.policy.rules()[1].origin, "run.toml:55");
}

TEST(Config, RelativePathsStartAtTheConfigFile) {
  const RunConfig c = parse(
      "run = {steps = 1, out = \"here\"}\nmodel.path = \"../m\"\ndata = {source = \"./kk\", tokenizer = "
      "\"t.json\"}");
  EXPECT_EQ(c.run.out, "here");
  EXPECT_EQ(c.model.path, here("m"));
  EXPECT_EQ(c.data.source, Strings{here("dir/kk")});
  EXPECT_EQ(c.data.tokenizer, here("dir/t.json"));
  EXPECT_EQ(parse("run.steps = 1\nmodel.path = \"/m\"\ndata = {source = \"/d/*.txt\", tokenizer = \"model\"}")
                .data.tokenizer,
            "model");
}

TEST(Config, PathsOfOverridesStartAtTheCurrentDirectory) {
  EXPECT_EQ(parse(kSmallest, {"data.source=a.txt"}).data.source, Strings{here("a.txt")});
}

TEST(Config, TheDefaultMicroBatchDividesTheBatch) {
  EXPECT_EQ(parse(kSmallest, {"batch.global_batch_size=4"}).batch.micro_batch_size, 4);
  EXPECT_EQ(parse(kSmallest, {"batch.global_batch_size=7"}).batch.micro_batch_size, 7);
  EXPECT_EQ(parse(kSmallest, {"batch.global_batch_size=22"}).batch.micro_batch_size, 2);
  EXPECT_EQ(parse(kSmallest, {"batch.global_batch_size=13"}).batch.micro_batch_size, 1);
  EXPECT_EQ(parse(kSmallest, {"batch.global_batch_size=24", "batch.shards=2", "batch.leaf=3"})
                .batch.micro_batch_size,
            6);
  EXPECT_EQ(parse(kSmallest, {"batch.global_batch_size=64", "batch.leaf=16"}).batch.micro_batch_size, 16);
}

TEST(Config, TheDefaultWarmUpOfAShortRunIsAllOfIt) {
  EXPECT_EQ(parse(kSmallest, {"run.steps=5"}).schedule.warmup_steps, 5);
}

TEST(Config, AWarmUpMayBeAShareOfTheRun) {
  const auto with = [](const std::string& schedule, const char* steps) {
    return parse(std::string(kSmallest) + "[schedule]\n" + schedule, {steps});
  };
  EXPECT_EQ(with("warmup_ratio = 0.03", "run.steps=300").schedule.warmup_steps, 9);
  EXPECT_EQ(with("warmup_ratio = 0.03", "run.steps=301").schedule.warmup_steps, 10) << "rounded up";
  EXPECT_EQ(with("warmup_ratio = 1", "run.steps=7").schedule.warmup_steps, 7);
  EXPECT_EQ(with("warmup_ratio = 0", "run.steps=300").schedule.warmup_steps, 20) << "the default";
  const RunConfig c = with("warmup_ratio = 0.1", "run.steps=300");
  EXPECT_EQ(parse(c.to_toml(), {}), c);
}

TEST(Config, TheScheduleIsDescribed) {
  const auto text = [](const std::string& schedule, const char* steps) {
    return schedule_text(parse(std::string(kSmallest) + "[schedule]\n" + schedule, {steps}));
  };
  EXPECT_EQ(text("", "run.steps=300"),
            "0.0003 after 20 steps of warm-up, then by cosine to 3e-05 at step 300");
  EXPECT_EQ(text("name = \"wsd\"\nwarmup_steps = 1\ndecay = \"1-sqrt\"", "run.steps=300"),
            "0.0003 after 1 step of warm-up, from step 271 on by 1-sqrt to 3e-05 at step 300");
  EXPECT_EQ(text("name = \"inverse-sqrt\"\nwarmup_steps = 75", "run.steps=300"),
            "0.0003 after 75 steps of warm-up, then by inverse-sqrt to 0.00015 at step 300");
  EXPECT_EQ(text("name = \"wsd\"\nwarmup_steps = 75\ndecay_steps = 300", "run.steps=300"),
            "0.0003 after 75 steps of warm-up, from step 76 on by cosine to 3e-05 at step 300");
  EXPECT_EQ(text("name = \"constant\"\nwarmup_steps = 0", "run.steps=300"), "0.0003, constant");
  EXPECT_EQ(text("", "run.steps=5"), "0.0003 after 5 steps of warm-up");
}

TEST(Config, ADecayLongerThanTheRunIsANote) {
  Told told;
  const RunConfig c = parse_config(
      std::string(kSmallest) + "[schedule]\nname = \"wsd\"\nwarmup_steps = 4\ndecay_steps = 50\n",
      "dir/run.toml", Strings{"run.steps=10"}, {}, &told);
  ASSERT_EQ(told.notes.size(), 1U);
  EXPECT_TRUE(told.notes[0].ends_with(
      ": schedule.decay_steps = 50 is more than the 6 steps after the warm-up, which decay from its end on"))
      << told.notes[0];
  EXPECT_EQ(parse_config(c.to_toml(), "printed.toml").schedule.decay_steps, 50);
}

TEST(Config, AWarmUpLongerThanTheRunIsCutWithANote) {
  for (const char* schedule : {"cosine", "linear", "constant"}) {
    Told told;
    const RunConfig c = parse_config(
        std::string(kSmallest) + fmt::format("[schedule]\nname = \"{}\"\nwarmup_steps = 100\n", schedule),
        "dir/run.toml", Strings{"run.steps=1"}, {}, &told);
    EXPECT_EQ(c.schedule.warmup_steps, 1);
    ASSERT_EQ(told.notes.size(), 1U);
    EXPECT_TRUE(
        told.notes[0].ends_with(": schedule.warmup_steps = 100 is more than run.steps, 1; the warm-up has 1 "
                                "step, so the learning rate rises until the last step"))
        << told.notes[0];
    EXPECT_EQ(parse_config(c.to_toml(), "printed.toml"), c);
  }
}

TEST(Config, AScheduleWhoseOnlyStepHasRateZeroIsAWarning) {
  const auto warnings = [](const std::string& schedule, const char* steps) {
    Told told;
    parse_config(std::string(kSmallest) + "[schedule]\n" + schedule, "dir/run.toml", Strings{steps}, {},
                 &told);
    return told.warnings;
  };
  for (const std::string name : {"cosine", "linear", "wsd"}) {
    const std::string decay = "warmup_steps = 0\nmin_lr_ratio = 0\nname = \"" + name + "\"\n";
    EXPECT_EQ(
        warnings(decay, "run.steps=1"),
        Strings{"schedule.name = \"" + name +
                "\": the only step has learning rate 0, at which this schedule ends, so the run changes "
                "no weight. Fix: --set schedule.name=constant, or --set schedule.warmup_steps=1"});
    EXPECT_EQ(warnings(decay, "run.steps=2"), Strings());
  }
  EXPECT_EQ(warnings("warmup_steps = 0\nmin_lr_ratio = 0\nname = \"constant\"\n", "run.steps=1"), Strings());
  EXPECT_EQ(warnings("warmup_steps = 1\nmin_lr_ratio = 0\n", "run.steps=1"), Strings());
  EXPECT_EQ(warnings("warmup_steps = 0\nmin_lr_ratio = 0.1\n", "run.steps=1"), Strings());
}

TEST(Config, ASectionOfAnotherObjectiveIsAWarning) {
  const auto read = [](const std::string& more, Told& told) {
    const RunConfig c = parse_config(kSmallest + more, "dir/run.toml", {}, {}, &told);
    EXPECT_EQ(parse_config(c.to_toml(), "printed.toml"), c);
    return c;
  };
  Told told;
  EXPECT_EQ(read("[dpo]\nbeta = 0.2\n", told).dpo, DpoSection{}) << "it has no effect";
  ASSERT_EQ(told.warnings.size(), 1U);
  EXPECT_TRUE(has(told.warnings[0],
                  ": [dpo] has no effect: train.objective is \"pretrain\". Fix: set "
                  "train.objective = \"dpo\", or remove the section"))
      << told.warnings[0];
  // A batch is that of the objective in which `train` trains; `rl` would refuse this one.
  const std::string left = kSmallest + std::string("[rl]\ntemperature = 0.5\n"),
                    batch = "batch.global_batch_size=6";
  Told left_over;
  EXPECT_EQ(parse_config(left, "run.toml", Strings{batch}, {}, &left_over, true).train.objective, "pretrain");
  ASSERT_EQ(left_over.warnings.size(), 1U);
  EXPECT_TRUE(has(left_over.warnings[0], ": [rl] has no effect: train.objective is \"pretrain\""));
  EXPECT_EQ(parse_config(left, "run.toml", {}, {}, nullptr, true).train.objective, "rl");
  EXPECT_THROW(parse_config(left, "run.toml", Strings{batch}), ConfigError);
  Told both;
  EXPECT_EQ(read("[train]\nobjective = \"sft\"\n[dpo]\nbeta = 0.2\n[rl]\ntemperature = 0.5\n", both).rl,
            RlSection{});
  EXPECT_EQ(both.warnings.size(), 2U);
  Told own;
  EXPECT_EQ(read("[train]\nobjective = \"dpo\"\n[dpo]\nbeta = 0.2\n", own).dpo.beta, 0.2);
  EXPECT_TRUE(own.warnings.empty());
}

TEST(Config, OverridesAreTomlOrBareStrings) {
  const RunConfig c = parse(
      kSmallest, {"run.steps=5", "run.steps = 9", "run.name=abc", "optimizer.betas=[0.8, 0.9]",
                  "optimizer.lr=1e-2", "data.shuffle=false", "data.validation=0", "precision.compute=bf16",
                  "model.rope_theta=5", "precision.rules=[\"lm_head: compute=f32\"]"});
  EXPECT_EQ(c.run.steps, 9);  // the later one wins
  EXPECT_EQ(c.run.name, "abc");
  EXPECT_EQ(c.optimizer.settings.at("betas"), optim::Setting(std::array{0.8, 0.9}));
  EXPECT_EQ(c.optimizer.lr, 1e-2);
  EXPECT_FALSE(c.data.shuffle);
  EXPECT_EQ(c.data.validation.share, 0);
  EXPECT_EQ(c.policy.fields().compute, Scalar::bf16);
  EXPECT_EQ(c.policy.rules().at(0).origin, "--set");
  EXPECT_EQ(c.model.fields["rope_theta"], 5.0);
  EXPECT_EQ(parse(kSmallest, {"run.name=2024-01-01"}).run.name, "2024-01-01");
  EXPECT_EQ(parse(kSmallest, {"run.name=0010"}).run.name, "0010");
  EXPECT_EQ(parse(kSmallest, {"run.name=a = 1\nb = 2"}).run.name, "a = 1\nb = 2");
  EXPECT_EQ(parse(kSmallest, {"precision.policy=bf16-mixed residual=bf16"}).policy.fields().residual,
            Scalar::bf16);
  EXPECT_EQ(parse(kSmallest, {"precision.rules=lm_head: compute=bf16"}).policy.rules().size(), 1U);
  EXPECT_EQ(parse(kSmallest, {"precision.policy=64"}).policy.preset(), "64-true");
}

RunConfig parse_under(const PrecisionArguments& precision, const Strings& overrides = {}) {
  return parse_config(kFull, "/somewhere/run.toml", overrides, precision);
}

TEST(Config, PrecisionReplacesThePolicyAndRuleAppends) {
  const RunConfig c = parse_under({"32", {"*: compute=bf16", "{match = \"lm_head\", compute = \"f32\"}"}});
  EXPECT_EQ(c.policy.preset(), "32-true");
  ASSERT_EQ(c.policy.rules().size(), 4U);
  EXPECT_EQ(c.policy.rules()[0].origin, "run.toml:54");
  EXPECT_EQ(c.policy.rules()[2].origin, "--rule 1");
  EXPECT_EQ(c.policy.rules()[3].origin, "--rule 2");
}

TEST(Config, APolicyOfTheCommandLineIsChecked) {
  EXPECT_EQ(
      message_of([&] {
        parse_under({"bf17", {}});
      }),
      "--precision: policy \"bf17\": no preset is called \"bf17\"; did you mean \"bf16\"? (presets: 64-true, "
      "32-true, tf32, bf16-matmul, bf16-matmul-x3, bf16-matmul-x6, bf16-mixed, 16-mixed, bf16-true, 16-true, "
      "fp8-hybrid)");
  EXPECT_EQ(message_of([&] {
              parse_under({std::nullopt, {"*: compute=f32", "lm_head compute=f32"}});
            }),
            "--rule 2: rule \"lm_head compute=f32\": a rule is SCOPE: field=value, such as \"lm_head: "
            "compute=f32\"; write *: for every scope");
  EXPECT_EQ(message_of([&] {
              parse_under({"kahan=true", {}});
            }).find("--precision: kahan=true is not available"),
            0U);
  EXPECT_EQ(message_of([&] {
              parse_under({std::nullopt, {"*: optimizer=e4m3"}});
            }).find("--rule 1: rule \"*: optimizer=e4m3\" (--rule 1): optimizer=e4m3 is not available"),
            0U);
}

TEST(Config, EveryKeyIsDescribed) {
  const std::vector<OptionInfo> all = options();
  const auto find = [&](const std::string& section, const std::string& key) {
    for (const OptionInfo& o : all) {
      if (o.section == section && o.key == key) return o;
    }
    ADD_FAILURE() << section << "." << key;
    return OptionInfo{};
  };
  EXPECT_EQ(find("optimizer", "betas").default_value, "[0.9, 0.95]");
  EXPECT_EQ(find("optimizer", "betas").type, "two numbers");
  EXPECT_EQ(find("run", "steps").default_value, "");
  EXPECT_EQ(find("run", "threads").default_value, "0");
  EXPECT_EQ(find("precision", "compute").default_value, "\"f32\"");
  EXPECT_EQ(find("precision.loss_scale", "hysteresis").default_value, "2");
  EXPECT_EQ(find("model", "head_dim").type, "whole number");
  std::istringstream lines(options_help());
  std::string help;  // without its line breaks
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(width_of(line), 80U) << line;
    help += line.starts_with("      ") ? " " + line.substr(6) : "\n" + line;
  }
  for (const OptionInfo& o : all) {
    EXPECT_FALSE(o.description.empty()) << o.section << "." << o.key;
    EXPECT_NE(help.find(o.description), std::string::npos);
  }
  EXPECT_NE(help.find("\n[optimizer]\n  name = \"adamw\" "), std::string::npos) << help;
}

TEST(Config, TheLossScaleIsThePolicysAndTheSectionsTogether) {
  const auto scaler = [](const Strings& overrides, const PrecisionArguments& precision = {}) {
    const RunConfig c = parse_config(kSmallest, "/somewhere/run.toml", overrides, precision);
    EXPECT_EQ(parse_config(c.to_toml(), "/somewhere/run.toml").to_toml(), c.to_toml());
    return scaler_options(c);
  };
  EXPECT_EQ(scaler({}), std::nullopt);
  EXPECT_EQ(scaler({"precision.policy=16-mixed"}), precision::ScalerOptions{});
  const std::string power = "precision.loss_scale.initial_scale_power=8";
  EXPECT_EQ(scaler({"precision.policy=16-mixed", power})->initial_scale, 256);
  EXPECT_EQ(scaler({power}, {"16", {}})->initial_scale, 256);
  EXPECT_EQ(scaler({"precision.policy=bf16-mixed loss_scale=dynamic:2^4"})->initial_scale, 16);
  EXPECT_EQ(scaler({"precision.policy=16-mixed", "precision.loss_scale.loss_scale=128"}),
            precision::ScalerOptions::constant(128));
  EXPECT_EQ(scaler({"precision.policy=16-mixed", "precision.loss_scale.rule=torch"}),
            precision::ScalerOptions::torch());
  EXPECT_EQ(scaler({"precision.policy=16-mixed", "precision.loss_scale.rule=torch",
                    "precision.loss_scale.loss_scale_window=3"})
                ->window,
            3);
  precision::ScalerOptions all;
  all.window = 7;
  all.hysteresis = 3;
  all.consecutive_hysteresis = true;
  all.min_scale = 0.5;
  all.raise_at_min = false;
  EXPECT_EQ(scaler({"precision.policy=16-mixed", "precision.loss_scale.loss_scale_window=7",
                    "precision.loss_scale.hysteresis=3", "precision.loss_scale.consecutive_hysteresis=true",
                    "precision.loss_scale.min_loss_scale=0.5",
                    "precision.loss_scale.raise_error_at_min_scale=false"}),
            all);
}

TEST(Config, AConstantLossScaleAndItsReciprocalAreNumbersOfF32) {
  for (const std::string scale : {"1e-40", "1e39"}) {
    const Strings overrides = {"precision.policy=16-mixed", "precision.loss_scale.loss_scale=" + scale};
    try {
      parse_config(kSmallest, "run.toml", overrides);
      ADD_FAILURE() << scale;
    } catch (const ConfigError& e) {
      const std::string message = e.what();
      EXPECT_NE(message.find("f32 must hold the scale and its reciprocal"), std::string::npos) << message;
    }
  }
}

TEST(Config, ALossScaleOfTheFileIsNotAnErrorIfTheCommandLineReplacesThePolicy) {
  const std::string text =
      std::string(kSmallest) + "[precision]\npolicy = \"16\"\n[precision.loss_scale]\nhysteresis = 3\n";
  EXPECT_EQ(scaler_options(parse_config(text, "run.toml"))->hysteresis, 3);
  EXPECT_EQ(scaler_options(parse_config(text, "run.toml", {}, {"32-true", {}})), std::nullopt);
}

TEST(Config, OverridesChangeThePolicyThatReplacesTheConfigs) {
  const std::string text =
      std::string(kSmallest) + "[precision]\npolicy = \"32-true\"\nrules = [\"lm_head: params=f32\"]\n";
  const std::vector<std::string> overrides = {"precision.rounding=stochastic"};
  const PrecisionArguments arguments{"bf16-true", {}};
  const RunConfig config = parse_config(text, "run.toml", overrides, arguments);
  EXPECT_EQ(config.policy,
            precision::Policy::parse("bf16-true rounding=stochastic").with_rule(config.policy.rules()[0]));
  EXPECT_EQ(config.policy.rules().size(), 1U);
  EXPECT_THROW(parse_config(text, "run.toml", overrides, {}), ConfigError) << "no format is below f32";
}

TEST(Config, FineTuningHasItsKeysAndDefaults) {
  const std::string sft = std::string(kSmallest) + "[train]\nobjective = \"sft\"\n";
  const RunConfig c = parse(sft);
  EXPECT_EQ(c.data.chat_template, "auto");
  EXPECT_EQ(c.data.train_on, "assistant");
  EXPECT_EQ(c.data.truncate, "refuse");
  EXPECT_EQ(c.data.masked_rows, "skip");
  EXPECT_EQ(c.data.empty_answers, "skip");
  EXPECT_FALSE(c.data.packing);
  EXPECT_EQ(c.optimizer.lr, 5e-6);
  EXPECT_EQ(c.schedule.warmup_steps, 9) << "3 % of 300";
  EXPECT_EQ(parse(sft + "[optimizer]\nlr = 1e-4\n[schedule]\nwarmup_steps = 5\n").optimizer.lr, 1e-4);
  const RunConfig own = parse(
      "[run]\nsteps = 10\n[model]\nhidden_size = 64\n[train]\nobjective = \"sft\"\n[data]\n"
      "source = \"kk\"\ntemplate = \"my.jinja\"\ntruncate = \"left\"\n");
  EXPECT_EQ(own.data.chat_template, here("dir/my.jinja"));
  EXPECT_EQ(own.data.truncate, "left");
  EXPECT_EQ(parse(own.to_toml()), own);
}

TEST(Config, PromptsOfRlHaveATemplateAndALimit) {
  const RunConfig c = parse(
      "[run]\nsteps = 10\n[model]\nhidden_size = 64\n[data]\nsource = \"kk\"\ntemplate = \"none\"\n"
      "truncate = \"skip\"\n[rl]\nreward = \"regex:^a\"\n");
  EXPECT_EQ(c.train.objective, "rl") << "as a key of [rl] says";
  EXPECT_EQ(c.data.chat_template, "none");
  EXPECT_EQ(c.data.truncate, "skip");
  EXPECT_EQ(c.rl.reward, "regex:^a");
  EXPECT_EQ(parse(c.to_toml()), c);
}

RunConfig with_objective(const std::string& objective, const std::string& key) {
  std::string text = kSmallest + ("[train]\nobjective = \"" + objective + "\"\n");
  return parse(text.insert(text.find("source"), key + "\n"));
}

TEST(Config, PairsHaveTheKeysOfConversationsAndDefaults) {
  for (const auto& [objective, lr] : {std::pair{"dpo", 5e-7}, std::pair{"reward", 9e-6}}) {
    const RunConfig c = with_objective(objective, "shuffle = true");
    EXPECT_EQ(c.optimizer.lr, lr);
    EXPECT_EQ(c.schedule.warmup_steps, 9) << "3 % of 300";
    EXPECT_EQ(rows_per_item(c), 2);
    EXPECT_EQ(parse(c.to_toml()), c);
    EXPECT_EQ(with_objective(objective, "truncate = \"left\"").data.truncate, "left");
    EXPECT_NE(
        message_of([&] {
          with_objective(objective, "packing = true");
        }).find(fmt::format("data.packing = true: train.objective = \"{}\" does not pack rows", objective)),
        std::string::npos);
  }
  EXPECT_EQ(with_objective("dpo", "train_on = \"last\"").data.train_on, "last");
  EXPECT_NE(message_of([] {
              with_objective("reward", "train_on = \"last\"");
            }).find("only train.objective = \"sft\" and \"dpo\" use it"),
            std::string::npos);
  EXPECT_EQ(rows_per_item(parse(kSmallest)), 1);
}

TEST(Config, TheExampleOfFineTuningIsRead) {
  const RunConfig c = load_config(std::filesystem::path(MANTISSA_SOURCE_DIR) / "examples/logic-rl-sft.toml");
  EXPECT_EQ(c.train.objective, "sft");
  EXPECT_TRUE(c.data.packing);
}

TEST(Config, KeysOfFineTuningAreErrorsWithoutIt) {
  const std::string sft = "[train]\nobjective = \"sft\"\n";
  const auto with = [](std::string config, const std::string& key) {
    return message_of([&] { parse(config.insert(config.find("source"), key + "\n")); });
  };
  EXPECT_NE(with(kSmallest, "truncate = \"left\"").find("data.truncate = \"left\": only train.objective"),
            std::string::npos);
  EXPECT_NE(with(kSmallest + sft, "template = \"chatlm\"").find("did you mean \"chatml\""),
            std::string::npos);
  EXPECT_NE(with(kSmallest + sft, "truncate = \"both\"").find("unknown choice"), std::string::npos);
  EXPECT_NE(with(kSmallest + sft, "format = \"text\"").find("reads rows with fields"), std::string::npos);
  const std::string rl = kSmallest + std::string("[train]\nobjective = \"rl\"\n");
  EXPECT_NE(with(rl, "train_on = \"all\"")
                .find("data.train_on = \"all\": only train.objective = \"sft\" and \"dpo\" use it"),
            std::string::npos);
  EXPECT_NE(
      with(rl, "truncate = \"left\"").find("a prompt of rl is not truncated; write \"refuse\" or \"skip\""),
      std::string::npos);
  EXPECT_NE(with(rl, "packing = true").find("train.objective = \"rl\" does not pack rows"),
            std::string::npos);
  EXPECT_NE(with(rl, "format = \"tokens\"").find("train.objective = \"rl\" reads rows with fields"),
            std::string::npos);
  EXPECT_NE(with(kSmallest + sft + "[batch]\nleaf = 2\n", "packing = true").find("batch.leaf = 2"),
            std::string::npos);
}

}  // namespace
}  // namespace mantissa::config
