// The programs of a run: its parts by rules, training, forward passes, decoding and traces.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/runtime/device.h"
#include "mantissa/setup/programs/decoding.h"
#include "mantissa/setup/programs/evaluation.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::programs {
namespace {

config::RunConfig config_of(const std::vector<std::string>& rules = {}, const std::string& optimizer = "") {
  const std::string text =
      "[run]\nsteps = 9\n[model]\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 2\n"
      "num_attention_heads = 2\nvocab_size = 256\n[data]\nsource = \"kk\"\nsequence_length = 32\n"
      "[batch]\nglobal_batch_size = 4\nmicro_batch_size = 2\n[optimizer]\n" +
      optimizer;
  return config::parse_config(text, "run.toml", {}, {.policy = "bf16-mixed", .rules = rules});
}

std::vector<RunPart> parts_of(const config::RunConfig& config) {
  return compile_parts(config, weights::find_model(config.model).config, mantissa::testing::best_device());
}

std::vector<std::int64_t> first_steps(const std::vector<RunPart>& parts) {
  std::vector<std::int64_t> all;
  for (const RunPart& part : parts) all.push_back(part.first);
  return all;
}

TEST(RunParts, BeginWhereRulesBeginAndEnd) {
  EXPECT_EQ(first_steps(parts_of(config_of())), (std::vector<std::int64_t>{0}));
  const std::vector<RunPart> parts = parts_of(config_of({"lm_head: steps=3:5 compute=f32"}));
  EXPECT_EQ(first_steps(parts), (std::vector<std::int64_t>{0, 3, 5}));
  const auto copies = [](const RunPart& part) {
    std::size_t all = 0;
    for (const plan::Slot& slot : part.program->slots) all += slot.copies.size();
    return all;
  };
  EXPECT_LT(copies(parts[1]), copies(parts[0]));  // the head reads its master in f32
  EXPECT_EQ(copies(parts[2]), copies(parts[0]));
}

TEST(RunParts, RulesAfterTheLastStepMakeNoPart) {
  EXPECT_EQ(first_steps(parts_of(config_of({"lm_head: steps=9:12 compute=f32"}))),
            (std::vector<std::int64_t>{0}));
}

TEST(RunParts, HaveTheSameSlotsAndUpdates) {
  const std::vector<RunPart> parts = parts_of(config_of({"*: steps=4:6 compute=f32"}));
  ASSERT_EQ(parts.size(), 3U);
  for (const RunPart& part : parts) {
    ASSERT_EQ(part.program->slots.size(), parts[0].program->slots.size());
    for (std::size_t i = 0; i < part.program->slots.size(); ++i)
      EXPECT_EQ(part.program->slots[i].name, parts[0].program->slots[i].name);
    EXPECT_NE(part.program->update, nullptr);
    EXPECT_FALSE(part.numbers.empty());
  }
  EXPECT_EQ(largest_arena(parts),
            std::max({parts[0].program->memory.arena(), parts[1].program->memory.arena(),
                      parts[2].program->memory.arena()}));
}

TEST(TrainingProgram, HasNoGradientForFrozenParameters) {
  const auto gradients = [](const std::string& optimizer) {
    const config::RunConfig config = config_of({}, optimizer);
    const plan::Program program = compile_training(config, weights::find_model(config.model).config, 2,
                                                   mantissa::testing::best_device());
    std::vector<std::string> names;
    for (const plan::Slot& slot : program.slots) {
      if (slot.gradient >= 0) names.push_back(slot.name);
    }
    return names;
  };
  const auto all = gradients("");
  const auto trained = gradients("[[optimizer.group]]\nmatch = \"*layers.0.*\"\nfreeze = true\n");
  EXPECT_LT(trained.size(), all.size());
  for (const std::string& name : trained) EXPECT_EQ(name.find("layers.0."), std::string::npos) << name;
}

TEST(TrainingProgram, TakesTheTokensOfItsItems) {
  EXPECT_EQ(tokens_of(config_of(), 3), 3 * 32);
}

TEST(LogProbs, HaveNoBackwardPassAndNoUpdate) {
  const config::RunConfig config = config_of();
  const plan::Program program =
      compile_log_probs(config, weights::find_model(config.model).config, mantissa::testing::best_device());
  for (const plan::Step& step : program.steps) EXPECT_NE(step.phase, graph::Phase::backward) << step.scope;
  for (const plan::Slot& slot : program.slots) EXPECT_LT(slot.gradient, 0) << slot.name;
  EXPECT_EQ(program.update, nullptr);
}

TEST(DecodingProgram, KeepsKeysAndValuesOfEveryStream) {
  const model::ModelConfig model = weights::find_model(config_of().model).config;
  const auto state = [&](std::int64_t capacity, std::int64_t streams) {
    const auto program = compile_decode(model, precision::Policy::parse("32-true"), capacity,
                                        mantissa::testing::best_device(), streams);
    std::size_t bytes = 0;
    for (const plan::Buffer& b : program->buffers) {
      if (b.home == plan::Home::state) bytes += b.bytes;
    }
    return bytes;
  };
  // Keys and values of 16 elements of f32 in each of two layers.
  EXPECT_EQ(state(32, 1), 32U * 2 * 2 * 16 * 4);
  EXPECT_EQ(state(32, 3), 3 * state(32, 1));
  EXPECT_EQ(state(64, 1), 2 * state(32, 1));
}

TEST(TraceProgram, KeepsEveryResultIfAsked) {
  const model::ModelConfig model = weights::find_model(config_of().model).config;
  const auto steps = [&](const TraceNeeds& needs) {
    return compile_trace(model, precision::Policy::parse("bf16-mixed"), 16, needs,
                         mantissa::testing::best_device())
        ->steps.size();
  };
  EXPECT_GT(steps({.keep_values = true}), steps({}));  // nothing is folded or fused
  EXPECT_GT(steps({.gradients = true}), steps({}));
}

}  // namespace
}  // namespace mantissa::programs
