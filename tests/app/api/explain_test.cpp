// Plans that do not fit, plans of a model under a DeepSpeed file, and rules that do not apply to a forward
// pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using mantissa::testing::has;
using mantissa::testing::into;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;

TEST(Explain, APlanThatDoesNotFitStatesByHowMuchAndHasNoTime) {
  // Some 4 TB of masters.
  const std::vector<std::string> large = {"model.hidden_size=16384", "model.intermediate_size=65536",
                                          "model.num_attention_heads=64", "model.num_hidden_layers=64"};
  const std::vector<std::string> targets = {"v100"};
  const Plan plan = explain(Config::parse(tiny_config(2, "32-true"), large), {}, targets);
  EXPECT_EQ(plan.largest_micro_batch_size, 0);
  EXPECT_TRUE(has(plan.text, " here: no, not even one sequence at a time: that needs ")) << plan.text;
  EXPECT_TRUE(has(plan.text, "16 GB on v100: no, not even one sequence at a time: that needs ")) << plan.text;
  EXPECT_TRUE(has(plan.text, " GB more than available\n")) << plan.text;
  EXPECT_TRUE(has(plan.text,
                  "time    unknown: the plan does not fit\n        unknown on v100: the plan does not fit\n"))
      << plan.text;
  EXPECT_FALSE(has(plan.text, "≤ 0")) << plan.text;
  const nlohmann::json json = nlohmann::json::parse(plan.json);
  EXPECT_TRUE(json["seconds_per_step"].is_null());
  EXPECT_TRUE(json["targets"][0]["seconds_per_step"].is_null());
}

TEST(Explain, ARuleForAnInsertedStepIsTheSameWarningInExplainAndTrain) {
  const TemporaryFolder folder;
  const Config config =
      Config::parse(tiny_config(2, "32-true"), {}, {std::nullopt, {"*: op=quantize compute=bf16"}, {}});
  ASSERT_EQ(config.warnings().size(), 1U);
  const std::string& warning = config.warnings().front();
  EXPECT_TRUE(has(warning, "matches nothing: \"quantize\" is not an op of the model")) << warning;
  const Plan plan = explain(config);
  EXPECT_EQ(plan.refusal, "");
  EXPECT_EQ(nlohmann::json::parse(plan.json)["warnings"], nlohmann::json::array({warning}));
  std::vector<std::string> told;
  Events events;
  events.on_warning = [&](const Warning& w) { told.push_back(w.text); };
  EXPECT_TRUE(std::filesystem::exists(train(config, into(folder / "run"), events).model));
  EXPECT_EQ(std::ranges::count(told, warning), 1);
}

TEST(Explain, AModelUnderADeepSpeedFileIsATrainingPlan) {
  const TemporaryFolder folder;
  const std::filesystem::path model =
      train(Config::parse(tiny_config(2, "32-true")), into(folder / "run")).model;
  std::ofstream(folder / "ds.json")
      << "{'fp16': {'enabled': true}, 'train_batch_size': 12, 'zero_optimization': "
         "{'stage': 2}}";
  const Precision deepspeed{std::nullopt, {}, folder / "ds.json"};
  for (const std::filesystem::path& what : {model, folder / "run"}) {
    const Plan plan = explain_model(what, deepspeed);
    EXPECT_TRUE(has(plan.text, "batch 12 = ")) << plan.text;
    EXPECT_TRUE(has(plan.text, "\nbackward\n")) << plan.text;
    EXPECT_TRUE(has(plan.text, "note    ds.json: fp16.enabled casts the whole module: residual=f16"))
        << plan.text;
    EXPECT_TRUE(has(plan.text, "note    a DeepSpeed file describes training, so this plan is for training"))
        << plan.text;
    EXPECT_FALSE(has(plan.text, " in total")) << plan.text;
    EXPECT_EQ(nlohmann::json::parse(plan.json)["loss_scale"], "dynamic:2^16");
  }
  EXPECT_TRUE(has(explain_model(model, {}).text, "generation, "));
}

TEST(ForwardOnly, CommandsLeaveRulesOfTrainingOutAndNoteThem) {
  const TemporaryFolder folder;
  const std::filesystem::path model =
      train(Config::parse(tiny_config(2, "32-true")), into(folder / "run")).model;
  const Precision rules{"bf16-mixed",
                        {"*: pass=backward compute=f32", "*: op=update compute=bf16",
                         "*: pass=update optimizer=bf16 "
                         "rounding=stochastic",
                         "*: operand=gradient compute=f32", "lm_head: compute=f32",
                         "*: op=matmul.dw accumulate=f32", "*: op=matmul.dx accumulate=f32"}};
  const Reading forward = read_precision(rules), with_backward = read_precision(rules, true);
  ASSERT_EQ(forward.notes.size(), 1U);
  EXPECT_EQ(forward.notes[0].find("left out: --rule 1 \""), 0U) << forward.notes[0];
  for (const char* named :
       {"--rule 2", "--rule 3", "--rule 4", "--rule 6", "--rule 7", "this command runs only a forward pass"})
    EXPECT_TRUE(has(forward.notes[0], named)) << forward.notes[0];
  EXPECT_FALSE(has(forward.notes[0], "--rule 5")) << forward.notes[0];
  ASSERT_EQ(with_backward.notes.size(), 1U);
  EXPECT_EQ(with_backward.notes[0].find("left out: --rule 2 \""), 0U) << with_backward.notes[0];
  EXPECT_FALSE(has(with_backward.notes[0], "--rule 4")) << with_backward.notes[0];
  EXPECT_FALSE(has(with_backward.notes[0], "--rule 6")) << with_backward.notes[0];

  const Precision only_head{"bf16-mixed", {"lm_head: compute=f32"}};
  GenerateOptions options;
  options.prompt = "Ada";
  options.precision = rules;
  const std::vector<double> generated = generate(model, options).log_probs;
  ASSERT_FALSE(generated.empty());
  options.precision.rules.clear();
  EXPECT_NE(generated, generate(model, options).log_probs) << "the rule of the head stays";
  options.precision = only_head;
  EXPECT_EQ(generated, generate(model, options).log_probs);
  EXPECT_EQ(evaluate(model, {"kk"}, "auto", 32, 0, rules).loss,
            evaluate(model, {"kk"}, "auto", 32, 0, only_head).loss);
  EXPECT_TRUE(has(explain_model(model, rules).text, "note    left out: --rule 1"));
  TraceOptions trace_options;
  trace_options.model = model;
  trace_options.ids = {{1, 2, 3}};
  trace_options.precision = rules;
  for (const bool grads : {false, true}) {
    trace_options.grads = grads;
    EXPECT_EQ(trace(trace_options).predicted, 2);
  }
  // The evaluation of a config uses the rules of its training unchanged.
  const Config config =
      Config::parse(tiny_config(2, "32-true"), {"run.out=" + (folder / "run").string()}, rules);
  EXPECT_GT(evaluate(config, 0).loss, 0);
  // An unknown scope is still an error.
  options.precision.rules = {"nowhere: compute=f32"};
  EXPECT_THROW(generate(model, options), ConfigError);
}

TEST(Formats, FourBitsAreNvfp4AndMxfp4) {
  const auto message = [](const auto& run) -> std::string {
    try {
      run();
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  for (const char* policy : {"fp4", "compute=fp4", "bf16-mixed; lm_head: compute=float4", "residual=fp4"}) {
    const std::string said = message([&] { read_precision({policy, {}}); });
    EXPECT_TRUE(has(said, "nvfp4") && has(said, "mxfp4")) << said;
  }
  const TemporaryFolder folder;
  std::ofstream(folder / "x") << "";
  ConvertOptions options;
  options.in = folder / "x";
  options.out = folder / "y";
  options.dtype = "fp4";
  const std::string said = message([&] { convert(options); });
  EXPECT_TRUE(has(said, "nvfp4 or mxfp4")) << said;
}

}  // namespace
}  // namespace mantissa::api
