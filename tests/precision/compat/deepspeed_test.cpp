// Reading of DeepSpeed's JSON: the config keys it sets, the scaler of each ZeRO stage, and the errors.
#include "mantissa/precision/compat/deepspeed.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string>
#include <utility>

#include "mantissa/precision/policy/policy.h"
#include "mantissa/precision/policy/supported.h"
#include "precision/policy/message.h"

namespace mantissa::compat {
namespace {

using namespace precision;

using Strings = std::vector<std::string>;

DeepSpeedFile parse(std::string_view text) {
  return parse_deepspeed(text, "runs/ds.json");
}

/// Returns the value of "section.key", or "" if the file does not set it.
std::string value(const DeepSpeedFile& file, std::string_view name) {
  const std::size_t dot = name.rfind('.');
  const DeepSpeedSetting* setting = file.find(name.substr(0, dot), name.substr(dot + 1));
  return setting == nullptr ? "" : setting->value;
}
std::string scaler(const DeepSpeedFile& file, const std::string& key) {
  return value(file, "precision.loss_scale." + key);
}

constexpr const char* kBlock =
    "\"fp16\": {\"enabled\": true, \"loss_scale\": 0, \"loss_scale_window\": 1000, \"hysteresis\": 2, "
    "\"min_loss_scale\": 1}";

std::string with_stage(const std::string& stage) {
  return std::string("{") + kBlock + ", \"zero_optimization\": {\"stage\": " + stage + "}}";
}

TEST(DeepSpeed, TheFp16BlockIsReadUnderEveryStageOfZero) {
  for (const char* stage : {"1", "2", "3"}) {
    const DeepSpeedFile file = parse(with_stage(stage));
    EXPECT_EQ(value(file, "precision.policy"), "\"16-mixed residual=f16\"");
    EXPECT_EQ(scaler(file, "rule"), "\"deepspeed\"");
    EXPECT_EQ(scaler(file, "loss_scale"), "0");
    EXPECT_EQ(scaler(file, "initial_scale_power"), "16");
    EXPECT_EQ(scaler(file, "loss_scale_window"), "1000");
    EXPECT_EQ(scaler(file, "hysteresis"), "2");
    EXPECT_EQ(scaler(file, "consecutive_hysteresis"), "false");
    EXPECT_EQ(scaler(file, "min_loss_scale"), "1");
    EXPECT_EQ(scaler(file, "raise_error_at_min_scale"), "true");
    EXPECT_EQ(file.scaler_warning, "");
    EXPECT_EQ(file.policy_line(), "16-mixed residual=f16 loss_scale=dynamic:2^16");
  }
}

TEST(DeepSpeed, StageZeroWarnsThatTheScalerHasNoHysteresisAndNeverStops) {
  // Stage 0 is the default without a block or a stage, and the meaning of the boolean false in old files.
  for (const std::string& text : {with_stage("0"), std::string("{\"train_batch_size\": 8, ") + kBlock + "}",
                                  std::string("{") + kBlock + ", \"zero_optimization\": {}}",
                                  std::string("{") + kBlock + ", \"zero_optimization\": false}"}) {
    const DeepSpeedFile file = parse(text);
    EXPECT_EQ(scaler(file, "hysteresis"), "1") << text;
    EXPECT_EQ(scaler(file, "raise_error_at_min_scale"), "false") << text;
    EXPECT_NE(file.scaler_warning.find("no hysteresis"), std::string::npos) << text;
  }
  EXPECT_EQ(scaler(parse(std::string("{") + kBlock + ", \"zero_optimization\": true}"), "hysteresis"), "2");
}

TEST(DeepSpeed, ASinglePrecisionBlockImpliesNoStage) {
  for (const std::string& text :
       {std::string("{") + kBlock + "}", std::string(kBlock) + ",\n",
        std::string("{'enabled': True, 'loss_scale': 0, 'loss_scale_window': 1000, 'hysteresis': 2}")}) {
    const DeepSpeedFile file = parse(text);
    EXPECT_EQ(value(file, "precision.policy"), "\"16-mixed residual=f16\"") << text;
    EXPECT_EQ(scaler(file, "hysteresis"), "2") << text;
    EXPECT_EQ(file.scaler_warning, "") << text;
  }
}

TEST(DeepSpeed, APositiveLossScaleIsConstant) {
  const DeepSpeedFile file =
      parse("{\"fp16\": {\"enabled\": true, \"loss_scale\": 128, \"loss_scale_window\": 0}}");
  EXPECT_EQ(scaler(file, "loss_scale"), "128");
  EXPECT_EQ(scaler(file, "hysteresis"), "");
  EXPECT_EQ(file.policy_line(), "16-mixed residual=f16 loss_scale=128");
}

TEST(DeepSpeed, EnabledBlocksDecideThePolicy) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"bf16\": {\"enabled\": true}}", "\"bf16-mixed residual=bf16\""},
      {"{\"bfloat16\": {\"enabled\": true}, \"fp16\": {\"enabled\": false}}", "\"bf16-mixed residual=bf16\""},
      {"{\"fp16\": {\"enabled\": false, \"loss_scale\": 0}}", "\"32-true\""},
      {"{\"fp16\": {\"loss_scale\": 0}}", "\"32-true\""},
      {"{\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true}}", "\"bf16-true\""},
      {"{\"fp16\": {\"enabled\": true, \"fp16_master_weights_and_grads\": true}}",
       "\"16-true loss_scale=dynamic\""},
      {"{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"bfloat16\"}}", "\"bf16-mixed\""},
      {"{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"bfloat16\"}, \"bf16\": {\"enabled\": true}}",
       "\"bf16-mixed residual=bf16\""},
      {"{\"amp\": {\"enabled\": true, \"opt_level\": \"O2\"}}", "\"16-mixed\""},
      {"{\"amp\": {\"enabled\": true, \"opt_level\": \"O0\"}}", "\"32-true\""},
      {"{\"fp16\": {\"enabled\": \"auto\"}, \"bf16\": {\"enabled\": \"auto\"}}", ""},
      {"{\"fp16\": {\"enabled\": \"auto\"}, \"bf16\": {\"enabled\": true}}", "\"bf16-mixed residual=bf16\""},
      {"{\"zero_optimization\": {\"stage\": 2}}", ""}};
  for (const auto& [text, policy] : cases) EXPECT_EQ(value(parse(text), "precision.policy"), policy) << text;
  EXPECT_EQ(scaler(parse("{\"amp\": {\"enabled\": true}}"), "rule"), "\"torch\"");
}

TEST(DeepSpeed, A16BitFormatAppliesToTheWholeModuleAndIsNoted) {
  const DeepSpeedFile f16 = parse("{'fp16': {'enabled': true}}"), bf16 = parse("{'bf16': {'enabled': true}}");
  EXPECT_EQ(Policy::parse(*f16.policy_line()).fields().residual, Scalar::f16);
  EXPECT_EQ(Policy::parse(*bf16.policy_line()).fields().residual, Scalar::bf16);
  EXPECT_EQ(
      f16.policy_note,
      "fp16.enabled casts the whole module: residual=f16, and embedding rows, norm gains and biases are "
      "read from f16 copies; 16-mixed alone keeps them f32, as autocast does");
  EXPECT_NE(bf16.policy_note.find("bf16.enabled casts the whole module: residual=bf16"), std::string::npos);
  // Autocast does not.
  const DeepSpeedFile autocast = parse("{'torch_autocast': {'enabled': true, 'dtype': 'bfloat16'}}");
  EXPECT_EQ(Policy::parse(*autocast.policy_line()).fields().residual, Scalar::f32);
  EXPECT_EQ(autocast.policy_note, "");
}

TEST(DeepSpeed, SixteenBitMomentsWarnOfStochasticRounding) {
  const DeepSpeedFile file = parse(
      "{'bf16': {'enabled': true, 'bf16_master_weights_and_grads': true, 'bf16_optimizer_states': true}}");
  EXPECT_EQ(file.policy_line(), "bf16-true optimizer=bf16 rounding=stochastic");
  check_supported(Policy::parse(*file.policy_line()));
  ASSERT_EQ(file.warnings.size(), 1U);
  EXPECT_EQ(file.warnings[0].find("bf16.bf16_optimizer_states: DeepSpeed rounds the moments to nearest"), 0U);
}

TEST(DeepSpeed, GradientAndCommunicationFormatsSetPolicyFields) {
  const DeepSpeedFile file = parse(
      "{\"bf16\": {\"enabled\": true}, \"data_types\": {\"grad_accum_dtype\": \"bf16\"}, "
      "\"communication_data_type\": \"fp32\"}");
  EXPECT_EQ(value(file, "precision.grads"), "\"bf16\"");
  EXPECT_EQ(value(file, "precision.reduce"), "\"f32\"");
  EXPECT_EQ(Policy::parse(*file.policy_line()), Policy::parse("bf16-mixed residual=bf16 grads=bf16"));
  EXPECT_EQ(value(parse("{\"data_types\": {\"grad_accum_dtype\": None}}"), "precision.grads"), "");
}

TEST(DeepSpeed, BatchSizesMultiply) {
  struct Case {
    const char *text, *global, *micro;
  };
  const Case cases[] = {
      {"'train_batch_size': 32, 'train_micro_batch_size_per_gpu': 4, 'gradient_accumulation_steps': 8", "32",
       "4"},
      {"'train_batch_size': 32, 'train_micro_batch_size_per_gpu': 4", "32", "4"},
      {"'train_batch_size': 32, 'gradient_accumulation_steps': 8", "32", "4"},
      {"'train_micro_batch_size_per_gpu': 4, 'gradient_accumulation_steps': 8", "32", "4"},
      {"'train_batch_size': 32", "32", ""},
      {"'train_micro_batch_size_per_gpu': 4", "4", "4"},
      {"'train_micro_batch_size_per_gpu': 4, 'train_batch_size': 'auto'", "", "4"},
      {"'train_batch_size': 256, 'train_micro_batch_size_per_gpu': 4, 'gradient_accumulation_steps': 8",
       "256", "4"}};
  for (const auto& [text, global, micro] : cases) {
    const DeepSpeedFile file = parse(std::string("{") + text + "}");
    EXPECT_EQ(value(file, "batch.global_batch_size"), global) << text;
    EXPECT_EQ(value(file, "batch.micro_batch_size"), micro) << text;
  }
  // The last case is for eight ranks, which a note reports.
  EXPECT_NE(parse(std::string("{") + cases[7].text + "}").notes.front().find("8 ranks"), std::string::npos);
  EXPECT_EQ(parse("{'gradient_accumulation_steps': 8}").accumulation, 8);
}

TEST(DeepSpeed, TranslatesOptimizerAndScheduler) {
  const DeepSpeedFile file = parse(
      "{'gradient_clipping': 0.5, 'optimizer': {'type': 'Adam', 'params': {'lr': 2e-4, 'betas': (0.9, 0.98), "
      "'eps': 1e-6, 'weight_decay': 0, 'torch_adam': True, 'adam_w_mode': False}}, 'scheduler': {'type': "
      "'WarmupCosineLR', 'params': {'warmup_num_steps': 10, 'cos_min_ratio': 0.05, 'warmup_type': "
      "'linear'}}}");
  const std::pair<const char*, const char*> expected[] = {
      {"optimizer.name", "\"adam\""},  {"optimizer.max_grad_norm", "0.5"},
      {"optimizer.lr", "0.0002"},      {"optimizer.betas", "[0.9, 0.98]"},
      {"optimizer.eps", "1e-06"},      {"optimizer.weight_decay", "0.0"},
      {"schedule.name", "\"cosine\""}, {"schedule.min_lr_ratio", "0.05"},
      {"schedule.warmup_steps", "10"}};
  for (const auto& [key, text] : expected) EXPECT_EQ(value(file, key), text) << key;
  EXPECT_EQ(file.warnings, Strings{});
  EXPECT_EQ(file.ignored, Strings{});
}

TEST(DeepSpeed, AdamIsAdamWUnlessItsDecayIsInTheGradient) {
  const std::pair<const char*, const char*> cases[] = {
      {"'type': 'AdamW'", "\"adamw\""},
      {"'type': 'Adam'", "\"adamw\""},
      {"'type': 'Adam', 'params': {'adam_w_mode': true}", "\"adamw\""},
      {"'type': 'Adam', 'params': {'adam_w_mode': false, 'weight_decay': 0.1}", "\"adam\""},
      {"'type': 'Adam', 'params': {'adam_w_mode': false, 'torch_adam': true}", "\"adam\""},
      {"'type': 'AdamW', 'params': {'adam_w_mode': false}", "\"adamw\""},  // DeepSpeed ignores it
      {"'type': 'auto'", ""},
      {"'params': {'lr': 1e-3}", ""},
      {"'type': 'Lion'", ""}};
  for (const auto& [text, name] : cases) {
    const DeepSpeedFile file = parse(fmt::format("{{'optimizer': {{{}}}}}", text));
    EXPECT_EQ(value(file, "optimizer.name"), name) << text;
    EXPECT_EQ(file.warnings.empty(), std::string_view(text).find("Lion") == std::string_view::npos) << text;
  }
}

TEST(DeepSpeed, WarnsAboutSettingsWithoutCounterpart) {
  const DeepSpeedFile file = parse(
      "{'optimizer': {'type': 'Lamb', 'params': {'lr': 1e-3}}, 'scheduler': {'type': 'WarmupDecayLR', "
      "'params': {'warmup_min_lr': 1e-6, 'warmup_num_steps': 5, 'total_num_steps': 100}}}");
  ASSERT_EQ(file.warnings.size(), 4U);
  EXPECT_NE(file.warnings[0].find("\"Lamb\" is not translated"), std::string::npos);
  EXPECT_NE(file.warnings[1].find("warmup_min_lr is not 0"), std::string::npos);
  EXPECT_NE(file.warnings[2].find("warmup_type is log"), std::string::npos);
  EXPECT_NE(file.warnings[3].find("total_num_steps"), std::string::npos);
  EXPECT_EQ(value(file, "optimizer.lr"), "");
  EXPECT_EQ(value(file, "schedule.name"), "\"linear\"");
}

TEST(DeepSpeed, NamesEveryAutoAndEveryIgnoredKeyOnce) {
  const DeepSpeedFile file = parse(
      "{'train_batch_size': 'auto', 'optimizer': {'type': 'AdamW', 'params': {'lr': 'auto'}}, "
      "'zero_optimization': {'stage': 2, 'overlap_comm': true, 'reduce_bucket_size': 'auto'}, "
      "'steps_per_print': 10, 'gradient_cliping': 1}");
  Strings autos;
  for (const DeepSpeedAuto& a : file.autos) autos.push_back(a.from + ">" + a.section + "." + a.key);
  EXPECT_EQ(autos, (Strings{"zero_optimization.reduce_bucket_size>.",
                            "train_batch_size>batch.global_batch_size", "optimizer.params.lr>optimizer.lr"}));
  EXPECT_EQ(file.ignored, (Strings{"zero_optimization.overlap_comm", "steps_per_print",
                                   "gradient_cliping; did you mean \"gradient_clipping\"?"}));
}

TEST(DeepSpeed, NamesAMisspeltSwitchButNotACorrectOne) {
  const std::pair<const char*, const char*> blocks[] = {
      {"bf16", "enable"}, {"fp16", "enabeld"}, {"amp", "enable"}, {"torch_autocast", "Enabled"}};
  for (const auto& [block, key] : blocks) {
    const DeepSpeedFile file = parse(fmt::format("{{'{}': {{'{}': true}}}}", block, key));
    EXPECT_EQ(file.ignored, Strings{fmt::format("{}.{}; did you mean \"enabled\"?", block, key)});
    for (const DeepSpeedSetting& s : file.settings)
      EXPECT_EQ(s.from, fmt::format("{}, which does not set enabled", block));
  }
  EXPECT_EQ(parse("{'fp16': {'loss_scale': 0, 'hysteresis': 2}}").ignored, Strings{});
}

TEST(DeepSpeed, ContradictionsNameBothKeys) {
  const std::pair<const char*, const char*> faults[] = {
      {"{'fp16': {'enabled': true}, 'bf16': {'enabled': true}}",
       "runs/ds.json: fp16.enabled and bf16.enabled are both true; keep one"},
      {"{'fp16': {'enabled': true}, 'amp': {'enabled': true}}", "fp16.enabled and amp.enabled"},
      {"{'fp16': {'enabled': true}, 'torch_autocast': {'enabled': true, 'dtype': 'bf16'}}",
       "fp16.enabled and torch_autocast.enabled"},
      {"{'bf16': {}, 'bfloat16': {}}", "bf16 and bfloat16 are the same block"},
      {"{'train_batch_size': 30, 'train_micro_batch_size_per_gpu': 4, 'gradient_accumulation_steps': 2}",
       "train_batch_size = 30 is not a multiple of train_micro_batch_size_per_gpu = 4 times "
       "gradient_accumulation_steps"},
      {"{'train_batch_size': 8, 'train_micro_batch_size_per_gpu': 16}",
       "train_batch_size = 8 is not a multiple of"},
      {"{'bf16': {'enabled': true, 'bf16_optimizer_states': true}}",
       "needs bf16.bf16_master_weights_and_grads"}};
  for (const auto& [text, expected] : faults) {
    const std::string message = message_of([&] { parse(text); });
    EXPECT_NE(message.find(expected), std::string::npos) << text << "\n" << message;
  }
}

TEST(DeepSpeed, ValuesOfTheWrongKindNameTheirKey) {
  const std::pair<const char*, const char*> faults[] = {
      {"{'fp16': 3}", "runs/ds.json: fp16 = 3: must be an object"},
      {"{'fp16': true}", "runs/ds.json: fp16 = true: must be an object such as {\"enabled\": true}"},
      {"{'bf16': false}", "bf16 = false: must be an object"},
      {"{'data_types': true}", "data_types = true: must be an object"},
      {"{'fp16': {'enabled': 'yes'}}", "fp16.enabled = \"yes\": must be true or false"},
      {"{'fp16': {'enabled': true, 'loss_scale': -1}}", "fp16.loss_scale = -1"},
      {"{'fp16': {'enabled': true, 'loss_scale_window': 0}}",
       "fp16.loss_scale_window = 0: must be at least 1"},
      {"{'fp16': {'enabled': true, 'hysteresis': 1.5}}", "fp16.hysteresis = 1.5: must be a whole number"},
      {"{'fp16': {'enabled': true, 'initial_scale_power': 200}}", "must be at most 127"},
      {"{'fp16': {'enabled': true, 'min_loss_scale': 0}}", "fp16.min_loss_scale = 0: must be above 0"},
      {"{'zero_optimization': {'stage': 4}}", "zero_optimization.stage = 4: must be 0, 1, 2 or 3"},
      {"{'train_batch_size': 0}", "train_batch_size = 0: must be at least 1"},
      {"{'train_batch_size': [8]}", "train_batch_size = an array: must be a number"},
      {"{'gradient_clipping': -1}", "gradient_clipping = -1: must be at least 0"},
      {"{'data_types': {'grad_accum_dtype': 'fp8'}}", "must be fp32, fp16 or bf16"},
      {"{'optimizer': {'type': 'Adam', 'params': {'betas': [0.9]}}}", "must be two numbers"}};
  for (const auto& [text, expected] : faults) {
    const std::string message = message_of([&] { parse(text); });
    EXPECT_NE(message.find(expected), std::string::npos) << text << "\n" << message;
  }
  EXPECT_THROW(read_deepspeed("/nowhere/ds.json"), FileError);
}

}  // namespace
}  // namespace mantissa::compat
