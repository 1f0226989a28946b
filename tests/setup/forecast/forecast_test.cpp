// Memory of runs whose rules change between steps.
#include "mantissa/setup/forecast/forecast.h"

#include <gtest/gtest.h>

#include "engine/runtime/device.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::forecast {
namespace {

constexpr const char* kModel =
    "[run]\nsteps = 9\n[model]\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 1\n"
    "num_attention_heads = 2\nvocab_size = 256\n[data]\nsource = \"kk\"\nsequence_length = 32\n"
    "[batch]\nglobal_batch_size = 4\n";

std::vector<programs::RunPart> parts_of(const std::string& precision) {
  const config::RunConfig config =
      config::parse_config(kModel + std::string("[precision]\n") + precision, "run.toml");
  return programs::compile_parts(config, weights::find_model(config.model).config,
                                 mantissa::testing::best_device());
}

TEST(ForecastMemory, OfOnePartIsThatOfItsPlan) {
  const std::vector<programs::RunPart> parts = parts_of("policy = \"bf16-mixed\"\n");
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(forecast_memory(parts, 7).activations, forecast_memory(*parts[0].program, 7).activations);
  EXPECT_EQ(forecast_memory(parts, 7).data, 7U);
  EXPECT_EQ(forecast_memory(parts, 7, 5).process, 5U);
}

TEST(ForecastMemory, IsThatOfThePartThatNeedsMost) {
  const std::vector<programs::RunPart> parts = parts_of(
      "policy = \"bf16-mixed\"\nrules = [{match = \"*\", compute = \"f32\", steps = \"2:\"}, {match = \"*\", "
      "compute = \"f16\", steps = \"20:\"}]\n");
  ASSERT_EQ(parts.size(), 2U) << "the run ends before step 20";
  EXPECT_EQ(parts[1].first, 2);
  const MemoryForecast run = forecast_memory(parts, 0), first = forecast_memory(*parts[0].program, 0),
                       second = forecast_memory(*parts[1].program, 0);
  EXPECT_GT(second.activations, first.activations);
  EXPECT_EQ(run.activations, second.activations);
}

// A model of many weights and few tokens: both parts' weights are more than one part's and its arena.
TEST(ForecastMemory, CountsTheWeightsOfTwoPartsWhereTheyMeet) {
  std::vector<programs::RunPart> parts = parts_of(
      "policy = \"bf16-mixed grads=bf16\"\nrules = [{match = \"*\", compute = \"f16\", steps = \"2:\"}]\n");
  ASSERT_EQ(parts.size(), 2U);
  for (programs::RunPart& part : parts) {
    auto without = std::make_shared<plan::Program>(*part.program);
    without->memory.activations = without->memory.work = 0;
    part.program = without;
  }
  const MemoryForecast run = forecast_memory(parts, 0), one = forecast_memory(*parts[0].program, 0);
  EXPECT_EQ(run.masters, 2 * one.masters);
  EXPECT_EQ(run.copies, 2 * one.copies);
  EXPECT_EQ(run.gradients, 0U);
  EXPECT_EQ(run.moments, one.moments);
}

}  // namespace
}  // namespace mantissa::forecast
