// Other machines: their formats, their files, and predicted times by their rates.
#include "mantissa/setup/forecast/target.h"

#include <gtest/gtest.h>

#include "engine/runtime/device.h"
#include "mantissa/core/base/error.h"
#include "mantissa/kernels/context.h"
#include "mantissa/setup/forecast/forecast.h"
#include "mantissa/setup/forecast/target_forecast.h"
#include "mantissa/setup/programs/training.h"

namespace mantissa::forecast {
namespace {

/// The required keys of a file.
constexpr const char* kFile =
    "memory_bytes = 1e9\nbytes_per_second = 1e15\n[flops_per_second]\nbf16 = 1e12\n";

std::string message(const std::string& text) {
  try {
    parse_target(text, "box.toml");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

plan::Program program_of(const std::string& policy) {
  const config::RunConfig config = config::parse_config(
      "[run]\nsteps = 1\n[model]\nmodel_type = \"llama\"\nvocab_size = 256\nhidden_size = 64\n"
      "intermediate_size = 128\nnum_hidden_layers = 2\nnum_attention_heads = 2\n[data]\nsource = \"kk\"\n"
      "[precision]\npolicy = \"" +
          policy + "\"\n",
      "run.toml");
  const model::ModelConfig model = model::parse_model_config(config.model.fields, "[model]");
  return programs::compile_training(config, model, config.batch.micro_batch_size,
                                    mantissa::testing::best_device());
}

TEST(Target, HasFormatsAsItsMakerStates) {
  const Target v100 = find_target("v100");
  EXPECT_EQ(find_target("V100-32GB").name, "v100-32gb");
  EXPECT_TRUE(format_on(v100, "f16").native);
  EXPECT_FALSE(format_on(v100, "bf16").native);
  EXPECT_EQ(format_on(v100, "bf16").computed_in, "f32");
  EXPECT_EQ(format_on(v100, "bf16").flops_per_second, format_on(v100, "f32").flops_per_second);
  EXPECT_FALSE(format_on(find_target("a100"), "e4m3").native);
  EXPECT_TRUE(format_on(find_target("a100"), "tf32").native);
  EXPECT_TRUE(format_on(find_target("h100"), "e4m3").native);
}

TEST(Target, TpuMultipliesF32AsSixProductsOfBf16) {
  const Target tpu = find_target("tpu-v5e");
  const double bf16 = format_on(tpu, "bf16").flops_per_second;
  EXPECT_DOUBLE_EQ(format_on(tpu, "f32").flops_per_second, bf16 / 6);
  EXPECT_DOUBLE_EQ(format_on(tpu, "bf16x3").flops_per_second, bf16 / 3);
  EXPECT_TRUE(format_on(tpu, "bf16x3").native);
  EXPECT_EQ(format_on(tpu, "f64").flops_per_second, 0);
}

TEST(Target, UnknownNamesGetASuggestion) {
  try {
    find_target("v10");
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean \"v100\""), std::string::npos) << e.what();
  }
  EXPECT_THROW(find_target("nowhere.toml"), FileError);
}

TEST(Target, FilesSayRatesInAnySpellingOfAFormat) {
  const Target t = parse_target(std::string(kFile) + "\"torch.float16\" = 1\n", "folder/box.toml");
  EXPECT_EQ(t.name, "box");
  EXPECT_EQ(format_on(t, "f16").flops_per_second, 1);
  EXPECT_EQ(format_on(t, "bf16").flops_per_second, 1e12);
  const Target u = parse_target(
      "name = \"mine\"\nproduct_share = 0.7\n" + std::string(kFile) + "float16 = 2e12\n", "box.toml");
  EXPECT_EQ(u.name, "mine");
  EXPECT_EQ(u.product_share, 0.7);
  EXPECT_EQ(format_on(u, "f16").flops_per_second, 2e12);
}

TEST(Target, FilesAreCheckedKeyByKey) {
  const std::pair<std::string, const char*> cases[] = {
      {"memory_byte = 1e9\n", "did you mean \"memory_bytes\""},
      {"memory_bytes = \"80 GB\"\n", "box.toml:1"},
      {"memory_bytes = 0\n", "above 0"},
      {"bytes_per_second = 1e12\n[flops_per_second]\nbf16 = 1e12\n", "memory_bytes"},
      {"memory_bytes = 1e9\nbytes_per_second = 1e12\n", "flops_per_second"},
      {"flops_per_second = 1e12\n", "must be a table"},
      {std::string(kFile) + "bfloat16 = 1e12\n", "twice"},
      {std::string(kFile) + "b16 = 1e12\n", "did you mean \"bf16\""},
      {"product_share = 1.5\n" + std::string(kFile), "at most 1"},
      {"memory_bytes =\n", "not valid TOML"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_NE(message(text).find(expected), std::string::npos) << text << "\n" << message(text);
}

TEST(Target, TimeScalesWithTheRateOfTheMultipliedFormat) {
  const plan::Program bf16 = program_of("bf16-mixed"), f32 = program_of("32-true");
  Target box = parse_target(std::string(kFile) + "f32 = 1e11\n", "box.toml");
  box.seconds_per_kernel = 1e-15;
  const double fast = forecast_seconds_on(box, bf16, 1);
  // Traffic at 10^15 bytes/s is negligible compared with products at 10^12 and 10^11 flop/s.
  EXPECT_NEAR(forecast_seconds_on(box, f32, 1) / fast, 10, 0.1);
  EXPECT_NEAR(forecast_seconds_on(box, bf16, 4) / fast, 4, 0.04);
  box.seconds_per_kernel = 1;
  EXPECT_GT(forecast_seconds_on(box, bf16, 1), static_cast<double>(bf16.steps.size()) / 2);
}

TEST(Target, AMissingFormatIsAWarningWithACure) {
  const Target v100 = find_target("v100");
  const std::vector<std::string> warnings = format_warnings(program_of("bf16-mixed"), v100);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("v100 has no bf16"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("16-mixed is native there"), std::string::npos) << warnings[0];
  EXPECT_TRUE(format_warnings(program_of("16-mixed"), v100).empty());
  EXPECT_TRUE(format_warnings(program_of("bf16-mixed"), find_target("tpu-v5e")).empty());
  EXPECT_EQ(forecast_seconds_on(find_target("tpu-v5e"), program_of("64-true"), 1), 0);
}

}  // namespace
}  // namespace mantissa::forecast
