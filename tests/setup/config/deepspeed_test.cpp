// A DeepSpeed file between a config's text and the command line, and the notes about it.
#include "mantissa/precision/compat/deepspeed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"
#include "mantissa/setup/config/run_config.h"
#include "precision/policy/message.h"

namespace mantissa::config {
namespace {

using precision::message_of;
using Strings = std::vector<std::string>;

constexpr const char* kRun =
    "[run]\nsteps = 300\n[model]\nhidden_size = 64\n[data]\nsource = \"kk\"\n[batch]\nglobal_batch_size = "
    "16\n"
    "micro_batch_size = 8\n[optimizer]\nmax_grad_norm = 3\n";

struct Read {
  RunConfig config;
  Told told;
  std::string all() const {
    std::string text;
    for (const std::string& line : told.notes) text += "note " + line + "\n";
    for (const std::string& line : told.warnings) text += "warning " + line + "\n";
    return text;
  }
};

Read read(const std::string& deepspeed, const Strings& overrides = {}, const std::string& more = "",
          PrecisionArguments precision = {}) {
  const compat::DeepSpeedFile file = compat::parse_deepspeed(deepspeed, "runs/ds.json");
  precision.deepspeed = &file;
  Read out;
  out.config = parse_config(std::string(kRun) + more, "/home/run.toml", overrides, precision, &out.told);
  EXPECT_EQ(parse_config(out.config.to_toml(), "/home/run.toml"), out.config);
  return out;
}

constexpr const char* kFp16 =
    "{'train_batch_size': 64, 'gradient_clipping': 0.5, 'zero_optimization': {'stage': 2}, 'fp16': "
    "{'enabled': True, 'loss_scale': 0, 'initial_scale_power': 12, 'loss_scale_window': 500, 'hysteresis': "
    "4, 'min_loss_scale': 2}}";

TEST(DeepSpeedConfig, SetsPolicyScalerBatchAndClipping) {
  const Read r = read(kFp16);
  EXPECT_EQ(r.config.policy, precision::Policy::parse("16-mixed residual=f16 loss_scale=dynamic:2^12"));
  const precision::ScalerOptions scaler = scaler_options(r.config).value();
  EXPECT_EQ(scaler.window, 500);
  EXPECT_EQ(scaler.hysteresis, 4);
  EXPECT_EQ(scaler.min_scale, 2);
  EXPECT_TRUE(scaler.raise_at_min);
  EXPECT_EQ(r.config.batch.global_batch_size, 64);
  EXPECT_EQ(r.config.batch.micro_batch_size, 8);
  EXPECT_EQ(r.config.optimizer.max_grad_norm, 0.5);
  EXPECT_NE(r.all().find("note ds.json: sets precision.policy = \"16-mixed residual=f16\" (fp16.enabled), "
                         "batch.global_batch_size = 64 (train_batch_size), optimizer.max_grad_norm = 0.5 "
                         "(gradient_clipping)"),
            std::string::npos)
      << r.all();
  EXPECT_TRUE(r.told.warnings.empty()) << r.all();
}

TEST(DeepSpeedConfig, TheNotesGiveThePresetThatTheFileNames) {
  const Read r = read("{'bf16': {'enabled': true}, 'communication_data_type': 'bf16'}");
  EXPECT_EQ(r.config.policy.preset(), "custom");
  EXPECT_NE(
      r.all().find(
          "precision.policy = \"bf16-mixed residual=bf16\" (bf16.enabled), precision.reduce = \"bf16\""),
      std::string::npos)
      << r.all();
}

TEST(DeepSpeedConfig, StageZeroGivesAWarningIfItsScalerApplies) {
  const std::string file = "{'fp16': {'enabled': True, 'hysteresis': 2}, 'zero_optimization': {'stage': 0}}";
  const Read r = read(file);
  EXPECT_FALSE(scaler_options(r.config).value().raise_at_min);
  EXPECT_EQ(scaler_options(r.config).value().hysteresis, 1);
  ASSERT_EQ(r.told.warnings.size(), 1U);
  EXPECT_NE(r.told.warnings[0].find("no hysteresis"), std::string::npos);
  EXPECT_TRUE(read(file, {"precision.policy=bf16-mixed"}).told.warnings.empty());
}

TEST(DeepSpeedConfig, TheCommandLineWins) {
  const Read r = read(kFp16, {"batch.global_batch_size=24", "precision.loss_scale.hysteresis=1"});
  EXPECT_EQ(r.config.batch.global_batch_size, 24);
  EXPECT_EQ(scaler_options(r.config).value().hysteresis, 1);
  EXPECT_EQ(scaler_options(r.config).value().window, 500);
  EXPECT_NE(r.all().find("the command line overrides batch.global_batch_size (train_batch_size), "
                         "precision.loss_scale.hysteresis (fp16.hysteresis)"),
            std::string::npos)
      << r.all();
  PrecisionArguments bf16;
  bf16.policy = "bf16-mixed";
  EXPECT_EQ(read(kFp16, {}, "", bf16).config.policy.preset(), "bf16-mixed");
  EXPECT_EQ(read(kFp16, {"precision.policy=bf16-mixed"}).config.policy.preset(), "bf16-mixed");
  EXPECT_EQ(read(kFp16, {"precision.residual=f32"}).config.policy.preset(), "16-mixed");
}

TEST(DeepSpeedConfig, A16BitFormatIsNotedIfItApplies) {
  const auto told = [](const Read& r) {
    return r.all().find("fp16.enabled casts the whole module") != std::string::npos;
  };
  EXPECT_TRUE(told(read(kFp16)));
  EXPECT_FALSE(told(read(kFp16, {"precision.policy=bf16-mixed"})));
  PrecisionArguments bf16;
  bf16.policy = "bf16-mixed";
  EXPECT_FALSE(told(read(kFp16, {}, "", bf16)));
}

TEST(DeepSpeedConfig, AScalerWithoutEffectIsNotedOnce) {
  PrecisionArguments bf16;
  bf16.policy = "bf16-mixed";
  for (const Read& r : {read(kFp16, {}, "", bf16), read(kFp16, {"precision.policy=bf16-mixed"})}) {
    const std::string all = r.all();
    const std::string idle =
        "note ds.json: fp16.loss_scale, fp16.initial_scale_power, fp16.loss_scale_window, "
        "fp16.min_loss_scale, fp16.hysteresis have no effect: the policy (bf16-mixed) has no loss scale\n";
    EXPECT_NE(all.find(idle), std::string::npos) << all;
    EXPECT_EQ(all.find("no effect"), all.rfind("no effect")) << all;
  }
  EXPECT_EQ(read(kFp16).all().find("no effect"), std::string::npos);
}

TEST(DeepSpeedConfig, ItsPolicyReplacesTheConfigsButKeepsTheRules) {
  const std::string more =
      "[precision]\npolicy = \"16-mixed\"\nresidual = \"f16\"\nrules = [\"lm_head: compute=f32\"]\n"
      "[precision.loss_scale]\nhysteresis = 3\n";
  const Read r = read("{'bf16': {'enabled': true}}", {}, more);
  EXPECT_EQ(r.config.policy.fields(), precision::Policy::parse("bf16-mixed residual=bf16").fields());
  EXPECT_EQ(r.config.policy.rules().size(), 1U);
  EXPECT_EQ(read("{'zero_optimization': {'stage': 3}}", {}, more).config.policy.fields().residual,
            Scalar::f16);
}

TEST(DeepSpeedConfig, AutoUsesTheConfigsValueAndIsListed) {
  const std::string file =
      "{'fp16': {'enabled': 'auto', 'hysteresis': 5}, 'bf16': {'enabled': 'auto'}, 'train_batch_size': "
      "'auto', 'train_micro_batch_size_per_gpu': 'auto', 'gradient_accumulation_steps': 'auto', "
      "'gradient_clipping': 'auto', 'zero_optimization': {'stage': 2, 'reduce_bucket_size': 'auto'}}";
  const Read r = read(file, {}, "[precision]\npolicy = \"16-mixed\"\n");
  EXPECT_EQ(r.config.policy.preset(), "16-mixed");
  EXPECT_EQ(scaler_options(r.config).value().hysteresis, 5);
  for (const char* expected :
       {"fp16.enabled = true (the policy is 16-mixed)", "bf16.enabled = false (the policy is 16-mixed)",
        "train_batch_size = 16 (batch.global_batch_size)",
        "train_micro_batch_size_per_gpu = 8 (batch.micro_batch_size)", "gradient_accumulation_steps = 2",
        "gradient_clipping = 3.0 (optimizer.max_grad_norm)",
        "zero_optimization.reduce_bucket_size = nothing"})
    EXPECT_NE(r.all().find(expected), std::string::npos) << expected << "\n" << r.all();
  // Under another policy the block's scaler does not apply.
  EXPECT_FALSE(scaler_options(read(file).config).has_value());
}

TEST(DeepSpeedConfig, AccumulationStepsDivideTheBatch) {
  EXPECT_EQ(read("{'gradient_accumulation_steps': 4}").config.batch.micro_batch_size, 4);
  EXPECT_EQ(
      read("{'gradient_accumulation_steps': 4}", {"batch.micro_batch_size=2"}).config.batch.micro_batch_size,
      2);
  EXPECT_EQ(read("{'train_batch_size': 12}").config.batch.micro_batch_size, 6);
  const std::string message = message_of([] { read("{'gradient_accumulation_steps': 5}"); });
  EXPECT_NE(message.find("gradient_accumulation_steps = 5 must divide batch.global_batch_size, which is 16"),
            std::string::npos)
      << message;
}

TEST(DeepSpeedConfig, AWarmUpLongerThanTheRunIsCutWithAWarning) {
  const Read r = read(
      "{'scheduler': {'type': 'WarmupLR', 'params': {'warmup_num_steps': 1000, 'warmup_type': "
      "'linear'}}}");
  EXPECT_EQ(r.config.schedule.name, "constant");
  EXPECT_EQ(r.config.schedule.warmup_steps, 300);
  ASSERT_EQ(r.told.warnings.size(), 1U);
  EXPECT_NE(r.told.warnings[0].find("more than run.steps"), std::string::npos);
}

/// A DeepSpeed file counts the sequences of an optimizer step.
TEST(DeepSpeedConfig, InReinforcementLearningItsBatchSetsThePrompts) {
  const auto rl = [](const std::string& file, const Strings& overrides = {}) {
    Strings all = {"train.objective=rl", "rl.samples_per_prompt=4", "batch.micro_batch_size=2"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return read(file, all);
  };
  const Read r = rl("{'train_batch_size': 64}");
  EXPECT_EQ(r.config.rl.prompts_per_step, 16);
  EXPECT_EQ(r.config.batch.global_batch_size, 64);
  EXPECT_NE(r.all().find("sets rl.prompts_per_step = 16 (train_batch_size, in sequences)"), std::string::npos)
      << r.all();
  EXPECT_EQ(rl("{'train_batch_size': 64}", {"rl.minibatches=2"}).config.rl.prompts_per_step, 32);
  const Read set = rl("{'train_batch_size': 64}", {"rl.prompts_per_step=2"});
  EXPECT_EQ(set.config.rl.prompts_per_step, 2);
  EXPECT_EQ(set.config.batch.global_batch_size, 8);
  EXPECT_NE(set.all().find("the command line overrides rl.prompts_per_step (train_batch_size)"),
            std::string::npos)
      << set.all();
  const Read text =
      read("{'train_batch_size': 64}", {"batch.micro_batch_size=2"}, "[rl]\nprompts_per_step = 3\n");
  EXPECT_EQ(text.config.rl.prompts_per_step, 16);
  EXPECT_NE(text.all().find("train_batch_size replaces rl.prompts_per_step of run.toml:13"),
            std::string::npos)
      << text.all();
  const compat::DeepSpeedFile steps =
      compat::parse_deepspeed("{'gradient_accumulation_steps': 8}", "runs/ds.json");
  const RunConfig accumulated = parse_config(
      "[run]\nsteps = 3\n[model]\nhidden_size = 64\n[data]\nsource = \"kk\"\n[rl]\nprompts_per_step = 20\n",
      "run.toml", {}, {.policy = {}, .rules = {}, .deepspeed = &steps});
  EXPECT_EQ(accumulated.batch.micro_batch_size, 10) << "of the 80 sequences of a step";
  const Read micro = rl("{'train_micro_batch_size_per_gpu': 4}");
  EXPECT_EQ(micro.config.rl.prompts_per_step, 16) << "the default";
  EXPECT_EQ(
      message_of([&] { rl("{'train_batch_size': 30}"); }),
      "runs/ds.json (train_batch_size): expected a multiple of rl.samples_per_prompt, 4, of sequences in a "
      "rollout, got 30. Fix: change one of them, or remove the key and set rl.prompts_per_step");
}

TEST(DeepSpeedConfig, ItsOptimizerReplacesTheConfigs) {
  const std::string file =
      "{'optimizer': {'type': 'Adam', 'params': {'adam_w_mode': false, 'weight_decay': 0.01}}}";
  const Read r = read(file, {}, "name = \"muon\"\n");
  EXPECT_EQ(r.config.optimizer.name, "adam");
  EXPECT_EQ(std::get<double>(r.config.optimizer.settings.at("weight_decay")), 0.01);
  EXPECT_NE(r.all().find("sets optimizer.name = \"adam\" (optimizer.params.adam_w_mode), "
                         "optimizer.weight_decay = 0.01 (optimizer.params.weight_decay)"),
            std::string::npos)
      << r.all();
  EXPECT_TRUE(r.told.warnings.empty()) << r.all();
  EXPECT_EQ(read(file, {"optimizer.name=lion"}).config.optimizer.name, "lion");
}

TEST(DeepSpeedConfig, AValueOutOfRangeNamesTheFileAndItsKey) {
  const std::string message =
      message_of([] { read("{'optimizer': {'type': 'AdamW', 'params': {'betas': [0.9, 1.5]}}}"); });
  EXPECT_EQ(message.find("runs/ds.json (optimizer.params.betas): optimizer.betas"), 0U) << message;
}

class NamedDeepSpeed : public test::TemporaryFolder {
 protected:
  /// A config in the same folder as the ds.json that it names.
  RunConfig named(const Strings& overrides = {}, const PrecisionArguments& precision = {},
                  Told* told = nullptr, const std::string& name = "ds.json") const {
    return parse_config(std::string(kRun) + "[precision]\ndeepspeed = \"" + name + "\"\n",
                        folder / "run.toml", overrides, precision, told);
  }
};

TEST_F(NamedDeepSpeed, EqualsTheOption) {
  test::put(folder / "ds.json", kFp16);
  const compat::DeepSpeedFile file = compat::read_deepspeed(folder / "ds.json");
  Told by_key, by_option;
  const RunConfig config = named({}, {}, &by_key);
  EXPECT_EQ(config, parse_config(kRun, folder / "run.toml", {}, {std::nullopt, {}, &file}, &by_option));
  EXPECT_EQ(config.policy.loss_scale().str(), "dynamic:2^12");
  EXPECT_EQ(by_key.notes, by_option.notes);
  EXPECT_EQ(by_key.warnings, by_option.warnings);
  // The resolved config has the file's values and no longer needs it.
  const std::string resolved = config.to_toml();
  std::filesystem::remove(folder / "ds.json");
  EXPECT_EQ(parse_config(resolved, folder / "run.toml"), config);
}

TEST_F(NamedDeepSpeed, TheCommandLineWins) {
  test::put(folder / "ds.json", kFp16);
  EXPECT_EQ(named({"optimizer.max_grad_norm=2"}).optimizer.max_grad_norm, 2);
  EXPECT_EQ(named({}, {"32-true", {}, nullptr}).policy.preset(), "32-true");
  const compat::DeepSpeedFile other = compat::parse_deepspeed("{'bf16': {'enabled': True}}", "other.json");
  EXPECT_EQ(named({}, {std::nullopt, {}, &other}, nullptr, "missing.json").policy.fields().residual,
            Scalar::bf16);
  EXPECT_EQ(named({"precision.deepspeed="}, {}, nullptr, "missing.json").policy.preset(), "32-true");
  test::put(folder / "bf16.json", "{'bf16': {'enabled': True}}");
  EXPECT_EQ(named({"precision.deepspeed=" + (folder / "bf16.json").string()}).policy.fields().residual,
            Scalar::bf16);
}

TEST_F(NamedDeepSpeed, AFileThatIsNotThereNamesTheKey) {
  const std::string message = test::message_of<FileError>([&] { named(); });
  EXPECT_EQ(message.find((folder / "run.toml").string() +
                         ":13: precision.deepspeed = " + (folder / "ds.json").string() + ": is not a file"),
            0U)
      << message;
  EXPECT_THROW(named({"precision.deepspeed=3"}), FileError);
  EXPECT_THROW(parse_config(std::string(kRun) + "[precision]\ndeepspeed = 3\n", folder / "run.toml"),
               ConfigError);
}

TEST(ForeignConfig, NotesOnAPolicyAreReported) {
  Told told;
  parse_config(std::string(kRun) + "[precision]\npolicy = \"param_dtype=bf16 buffer_dtype=bf16\"\n",
               "/home/run.toml", {}, {}, &told);
  ASSERT_EQ(told.notes.size(), 2U);
  EXPECT_EQ(told.notes[0].find("param_dtype casts the whole module: residual=bf16"), 0U);
  EXPECT_EQ(told.notes[1].find("buffer_dtype=bf16"), 0U);
  // An integer is a name of Fabric's too.
  EXPECT_EQ(parse_config(std::string(kRun) + "[precision]\npolicy = 16\n", "/home/run.toml").policy.preset(),
            "16-mixed");
}

}  // namespace
}  // namespace mantissa::config
