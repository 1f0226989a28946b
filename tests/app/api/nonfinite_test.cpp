// Non-finite results are errors: the message names the value, states remain, and the cure works.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::api {
namespace {

using mantissa::testing::has;
using mantissa::testing::into;
using mantissa::testing::read_all;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;

/// Returns the RunStopped that `run` throws. Fails the test if it throws none.
template <class F>
RunStopped stopped(const F& run) {
  try {
    run();
  } catch (const RunStopped& e) {
    return e;
  }
  ADD_FAILURE() << "it did not stop";
  return RunStopped("");
}

std::vector<std::string> arguments_of(const RunStopped& e) {
  return e.cures().empty() ? std::vector<std::string>() : e.cures().front().arguments;
}

/// A model whose activations are in the range of f32 but not of f16.
std::filesystem::path large_model(const TemporaryFolder& folder) {
  const std::vector<std::string> set = {"model.initializer_range=60", "optimizer.lr=1e-9",
                                        "schedule.warmup_steps=0"};
  return train(Config::parse(tiny_config(1, "32-true"), set), into(folder / "large")).model;
}

/// One finite step whose update gives weights with which f16 activations overflow.
Config one_large_step(const std::vector<std::string>& more = {}) {
  std::vector<std::string> set = {"optimizer.lr=3000", "schedule.warmup_steps=0"};
  set.insert(set.end(), more.begin(), more.end());
  return Config::parse(tiny_config(1, "16-mixed loss_scale=128"), set);
}

TEST(NonFinite, AHeldOutLossStopsTheRunWithItsStateAndWithoutAModel) {
  const TemporaryFolder folder;
  const RunStopped e = stopped([&] { train(one_large_step(), into(folder / "run")); });
  EXPECT_TRUE(
      has(e.message(), "step 1: the loss on held-out rows is nan; the first such value is model.layers.0."))
      << e.message();
  EXPECT_TRUE(has(e.message(), "65504 (f16); data rows ")) << e.message();
  EXPECT_FALSE(has(e.message(), "no weight was changed")) << e.message();
  EXPECT_FALSE(std::filesystem::exists(folder / "run/model"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/summary.json"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run/state/step-00000001/state.json"));
  EXPECT_TRUE(has(read_all(folder / "run/metrics.jsonl"), R"({"step":1,"validation_loss":null})"));
  // One of the cures takes the run to its end.
  TrainOptions again = into(folder / "run");
  again.resume = 0;
  const std::vector<std::string> f32 = {"precision.policy=32-true"};
  EXPECT_TRUE(std::filesystem::exists(train(one_large_step(f32), again).model));
}

TEST(NonFinite, AHeldOutLossInTheMiddleIsNotMeasuredAgain) {
  const TemporaryFolder folder;
  const std::vector<std::string> set = {"run.steps=2", "checkpoint.interval=1"};
  stopped([&] { train(one_large_step(set), into(folder / "run")); });
  TrainOptions again = into(folder / "run");
  again.resume = 0;
  // Resumed without changes, it continues to the next step.
  EXPECT_TRUE(has(stopped([&] { train(one_large_step(set), again); }).message(), "step 2: "));
}

TEST(NonFinite, ALastStepSkippedForItsLossGivesNoModel) {
  const TemporaryFolder folder;
  const std::vector<std::string> set = {"model.initializer_range=3000", "data.validation=0",
                                        "schedule.warmup_steps=0",
                                        "precision.policy=16-mixed loss_scale=128"};
  const RunStopped e =
      stopped([&] { train(Config::parse(tiny_config(1, "32-true"), set), into(folder / "run")); });
  EXPECT_TRUE(has(e.message(), "step 1: the loss of the last step is nan; the first such value is model."))
      << e.what();
  EXPECT_EQ(arguments_of(e), (std::vector<std::string>{"--overwrite", "--precision", "32-true"}));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/model"));
}

TEST(NonFinite, AnEvaluationNamesTheRowTheOpAndARuleThatCures) {
  const TemporaryFolder folder;
  const std::filesystem::path model = large_model(folder);
  Precision f16{"16-mixed", {}};
  const auto evaluated = [&] { return evaluate(model, {"kk"}, "auto", 32, 0, f16); };
  int times = 0;
  for (bool done = false; !done && times < 30; ++times) {
    try {
      EXPECT_GT(evaluated().loss, 0);
      done = true;
    } catch (const RunStopped& e) {
      EXPECT_TRUE(has(e.message(), "eval: the loss of row ")) << e.message();
      EXPECT_TRUE(has(e.message(), "; the first non-finite value is model.layers.0.")) << e.message();
      ASSERT_EQ(arguments_of(e).size(), 2U) << e.what();
      EXPECT_EQ(arguments_of(e)[0], "--rule");
      f16.rules.push_back(arguments_of(e)[1]);
    }
  }
  EXPECT_GT(times, 1);
  EXPECT_LT(times, 30) << "cure upon cure, and never cured";
}

TEST(NonFinite, AnOverflowOfA16BitModuleIsCuredByTheResidualStream) {
  const TemporaryFolder folder;
  const std::filesystem::path model = large_model(folder);
  // The branches are f32, but the sums of the stream are not.
  const Precision policy{"16-mixed residual=f16 compute=f32", {}};
  const RunStopped e = stopped([&] { evaluate(model, {"kk"}, "auto", 32, 0, policy); });
  EXPECT_EQ(arguments_of(e), (std::vector<std::string>{"--rule", "*: residual=f32"})) << e.what();
}

TEST(NonFinite, AValueAddedInPlaceIsReportedUnrounded) {
  const TemporaryFolder folder;
  const std::filesystem::path model = large_model(folder);
  GenerateOptions options;
  options.prompt = "Ada said";
  options.precision.policy = "16-mixed residual=f16 compute=f32";
  TraceOptions traced;
  traced.model = model;
  traced.ids = {{72, 101, 108, 108, 111}};
  traced.precision = options.precision;
  for (const RunStopped& e : {stopped([&] { evaluate(model, {"kk"}, "auto", 32, 0, options.precision); }),
                              stopped([&] { generate(model, options); }), stopped([&] { trace(traced); })})
    EXPECT_TRUE(has(e.message(), "65504 (f16)")) << e.message();
}

TEST(NonFinite, GenerationStopsAtLogitsThatAreNotNumbers) {
  const TemporaryFolder folder;
  GenerateOptions options;
  options.prompt = "Ada said";
  options.precision.policy = "16-mixed";
  const std::filesystem::path model = large_model(folder);
  const RunStopped e = stopped([&] { generate(model, options); });
  EXPECT_TRUE(has(e.message(),
                  "generate: the logits after token 8 are not finite; the first non-finite "
                  "value is model.layers.0."))
      << e.message();
  EXPECT_EQ(e.cures().back().arguments, (std::vector<std::string>{"--precision", "32-true"}));
  options.precision.policy = "32-true";
  EXPECT_FALSE(generate(model, options).ids.empty());
}

TEST(NonFinite, TheEffectOfAConversionIsNamedWhereAModelOverflows) {
  const TemporaryFolder folder;
  ConvertOptions options;
  options.in = large_model(folder);
  options.out = folder / "bf16";
  options.dtype = "bf16";
  options.data = {"kk"};
  options.precision.policy = "16-mixed";
  const RunStopped e = stopped([&] { convert(options); });
  EXPECT_TRUE(has(e.message(), "convert: the model is written; the loss of ")) << e.message();
  EXPECT_TRUE(std::filesystem::exists(options.out));
}

TEST(NonFinite, ATraceIsWrittenAndStops) {
  const TemporaryFolder folder;
  TraceOptions options;
  options.model = large_model(folder);
  options.ids = {{72, 101, 108, 108, 111}};
  options.out = folder / "trace";
  options.precision.policy = "16-mixed";
  const RunStopped e = stopped([&] { trace(options); });
  EXPECT_TRUE(has(e.message(),
                  "trace: logits has values that are not finite, the loss is nan; the trace was "
                  "written to " +
                      options.out.string() + "; the first non-finite value is model."))
      << e.message();
  const io::SafetensorsReader written(options.out);
  for (const char* name : {"logits", "log_probs", "loss"}) EXPECT_NE(written.find(name), nullptr) << name;
}

TEST(NonFinite, ATracesGradientsAreCheckedToo) {
  const TemporaryFolder folder;
  const std::filesystem::path model =
      train(Config::parse(tiny_config(2, "32-true")), into(folder / "run")).model;
  TraceOptions options;
  options.model = model;
  options.ids = {{72, 101, 108, 108, 111}};
  options.grads = true;
  options.precision.policy = "16-mixed loss_scale=dynamic:2^40";
  const RunStopped e = stopped([&] { trace(options); });
  EXPECT_TRUE(has(e.message(), "trace: grad.model.")) << e.message();
  EXPECT_TRUE(has(e.message(), "the first non-finite value is lm_head ")) << e.message();
  EXPECT_TRUE(has(e.message(), " backward ")) << e.message();
  EXPECT_FALSE(has(e.message(), "the loss is")) << e.message();
  options.precision.policy = "16-mixed";
  EXPECT_FALSE(trace(options).tensors.empty());
}

}  // namespace
}  // namespace mantissa::api
