// A run: its files, stopping and resuming with the same bytes, and its errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using mantissa::testing::into;
using mantissa::testing::read_all;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::timeless;
using mantissa::testing::tiny_config;

const char* const kPolicies[] = {
#ifndef MANTISSA_SANITIZED
    "64-true",
    "32-true",
    "bf16-mixed",
    "16-mixed",
    "bf16-true",
    "16-true",
    "bf16-mixed accumulate=f16 accumulate_block=32; *: op=softmax compute=bf16; *: op=statistics "
    "compute=bf16; *: op=angles compute=f16",
    "bf16-mixed residual=bf16",
    "16-mixed residual=f16",
    "32-true residual=tf32",
    "bf16-mixed residual=e5m2",
    "bf16-true optimizer=bf16 rounding=stochastic",
    "bf16-true optimizer=bf16 kahan=true",
    "32-true optimizer=bf16 rounding=stochastic",
    "16-true rounding=stochastic kahan=true",
    "32-true params=tf32 optimizer=tf32 rounding=stochastic",
    "params=e5m2 grads=e5m2 kahan=true",
    "bf16-mixed params=e4m3 grads=tf32 rounding=stochastic kahan=true",
#endif
    "bf16-matmul-x3",
    "fp8-hybrid; *mlp*: steps=2:5 compute=bf16",
    "bf16-mixed compute=nvfp4 scaling=delayed",
    "16-mixed saturate=true flush_subnormals=true output=compute>f32",
    "bf16-mixed params=bf16 rounding=toward-zero; *: pass=forward rounding=stochastic"};

class RunUnder : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Policies, RunUnder, ::testing::ValuesIn(kPolicies), [](const auto& p) {
  return std::regex_replace(std::string(p.param), std::regex("[^a-z0-9]"), "_");
});

TEST_P(RunUnder, LeavesTheDirectoryThatTheDocumentsDescribe) {
  const TemporaryFolder folder;
  const Summary s = train(Config::parse(tiny_config(6, GetParam())), into(folder / "run"));
  for (const char* name : {"config.toml", "plan.txt", "metrics.jsonl", "summary.json", "model/config.json",
                           "model/model.safetensors", "state/step-00000006/state.json"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / "run" / name)) << name;
  }
  const nlohmann::json summary = nlohmann::json::parse(read_all(folder / "run/summary.json"));
  for (const char* key :
       {"steps", "final_loss", "validation_loss", "tokens", "seconds", "predicted_peak_bytes",
        "measured_peak_bytes", "skipped", "policy", "weights_xxh64"}) {
    EXPECT_TRUE(summary.contains(key)) << key;
  }
  EXPECT_EQ(summary["steps"], 6);
  EXPECT_EQ(s.tokens, 6 * 4 * 32);
  EXPECT_LT(s.final_loss, s.first_loss);
  EXPECT_EQ(Config::load(folder / "run/config.toml").toml(), read_all(folder / "run/config.toml"));
}

TEST_P(RunUnder, StoppedAndResumedEndsWithTheBytesOfOneThatWasNot) {
  const TemporaryFolder folder;
  const Config config = Config::parse(tiny_config(8, GetParam()));
  const Summary whole = train(config, into(folder / "whole"));
  std::stop_source stop;
  Events events;
  events.on_step = [&](const Step& s) {
    if (s.step == 5) stop.request_stop();
  };
  const Summary half = train(config, into(folder / "parts"), events, stop.get_token());
  EXPECT_TRUE(half.interrupted);
  EXPECT_EQ(half.steps, 5);
  TrainOptions again = into(folder / "parts");
  again.resume = 0;
  again.hardware.threads = 1;
  const Summary rest = train(config, again);
  EXPECT_EQ(rest.weights_xxh64, whole.weights_xxh64);
  EXPECT_EQ(timeless(read_all(folder / "parts/metrics.jsonl")),
            timeless(read_all(folder / "whole/metrics.jsonl")));
  EXPECT_EQ(read_all(folder / "parts/model/model.safetensors"),
            read_all(folder / "whole/model/model.safetensors"));
}

TEST_P(RunUnder, ResumedFromAnEarlierStateMakesTheSameStepsAgain) {
  const TemporaryFolder folder;
  const Config config = Config::parse(tiny_config(8, GetParam()));
  const Summary whole = train(config, into(folder / "run"));
  const std::string metrics = timeless(read_all(folder / "run/metrics.jsonl"));
  TrainOptions again = into(folder / "run");
  again.resume = 3;
  EXPECT_EQ(train(config, again).weights_xxh64, whole.weights_xxh64);
  EXPECT_EQ(timeless(read_all(folder / "run/metrics.jsonl")), metrics);
}

TEST(Resume, RecordsTheMagnitudesOfItsOwnWeightsUnderDelayedScales) {
  // The weights shrink, so those of the beginning have larger magnitudes than those of a state.
  for (const char* policy : {"fp8-hybrid amax_history=2", "bf16-mixed compute=nvfp4 amax_history=2"}) {
    const TemporaryFolder folder;
    const Config config = Config::parse(std::regex_replace(tiny_config(8, policy), std::regex("lr = 1e-2"),
                                                           "lr = 1e-3\nweight_decay = 50.0"));
    const Summary whole = train(config, into(folder / "run"));
    const std::string metrics = timeless(read_all(folder / "run/metrics.jsonl")),
                      state = read_all(folder / "run/state/step-00000008/state.safetensors");
    TrainOptions again = into(folder / "run");
    again.resume = 3;
    EXPECT_EQ(train(config, again).weights_xxh64, whole.weights_xxh64) << policy;
    EXPECT_EQ(timeless(read_all(folder / "run/metrics.jsonl")), metrics) << policy;
    EXPECT_TRUE(read_all(folder / "run/state/step-00000008/state.safetensors") == state) << policy;
  }
}

TEST(Resume, ARunOnPuzzlesAndAFileMayBecomeLonger) {
  const TemporaryFolder folder;
  std::ofstream(folder / "a.txt") << std::string(4000, 'a');
  const auto of_steps = [&](int steps) {
    return Config::parse(std::regex_replace(tiny_config(steps, "32-true"), std::regex("source = \"kk\""),
                                            "source = [\"kk\", \"" + (folder / "a.txt").string() +
                                                "\"]\nweights = [0.5, 0.5]\ntokenizer = \"byte\""));
  };
  train(of_steps(3), into(folder / "run"));
  TrainOptions again = into(folder / "run");
  again.resume = 3;
  EXPECT_EQ(train(of_steps(300), again).steps, 300);
}

TEST(Resume, ReportsChangedGroupsAndTheFieldsOfAnotherModel) {
  const TemporaryFolder folder;
  const std::string config = tiny_config(8, "32-true");
  train(Config::parse(config), into(folder / "run"));
  TrainOptions again = into(folder / "run");
  again.resume = 3;
  try {
    train(Config::parse(
              std::regex_replace(config, std::regex("intermediate_size = 24"), "intermediate_size = 32")),
          again);
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_TRUE(testing::has(e.what(), "another model than that of the run (intermediate_size 24 -> 32)"))
        << e.what();
  }
  const std::string group = "lr = 1e-2\ngroup = [{match = \"*.mlp\", lr_scale = 0.1}]";
  train(Config::parse(std::regex_replace(config, std::regex("lr = 1e-2"), group)), again);
  const nlohmann::json state = nlohmann::json::parse(read_all(folder / "run/state/step-00000008/state.json"));
  EXPECT_EQ(state["changes"], nlohmann::json({"step 3: optimizer.group changed"}));
}

TEST_P(RunUnder, MicroBatchThreadsAndInstructionSetChangeNoBit) {
  const TemporaryFolder folder;
  // Gradients below f32 are rounded once per micro-batch (docs/numerics.md), so they depend on the split.
  const std::string policy = GetParam();
  const bool split_counts =
      policy.find("16-true") != std::string::npos || policy.find("grads=") != std::string::npos;
  const std::string reference =
      train(Config::parse(tiny_config(4, GetParam(), 4)), into(folder / "a")).weights_xxh64;
  for (const int micro : {1, 2}) {
    TrainOptions o = into(folder / ("micro" + std::to_string(micro)));
    o.hardware.threads = 3 - micro;
    const int used = split_counts ? 4 : micro;
    EXPECT_EQ(train(Config::parse(tiny_config(4, GetParam(), used)), o).weights_xxh64, reference)
        << "micro_batch_size " << used;
  }
#if defined(__x86_64__)
  TrainOptions o = into(folder / "avx2");
  o.hardware.simd = "avx2";
  EXPECT_EQ(train(Config::parse(tiny_config(4, GetParam(), 4)), o).weights_xxh64, reference) << "avx2";
#endif
}

TEST_P(RunUnder, RecomputingChangesNoBit) {
  const TemporaryFolder folder;
  const auto config = [](const std::string& recompute) {
    const std::vector<std::string> set = {"model.num_hidden_layers=3", "batch.recompute=" + recompute};
    return Config::parse(tiny_config(4, GetParam()), set);
  };
  const Summary kept = train(config("none"), into(folder / "none"));
  for (const char* recompute : {"attention", "block"}) {
    EXPECT_EQ(train(config(recompute), into(folder / recompute)).weights_xxh64, kept.weights_xxh64)
        << recompute;
  }
  TrainOptions from_state = into(folder / "none");
  from_state.resume = 3;
  EXPECT_EQ(train(config("block"), from_state).weights_xxh64, kept.weights_xxh64);
}

TEST(Run, NeedsLessMemoryForActivationsThatItRecomputes) {
  const auto activations = [](const std::string& recompute) {
    const std::vector<std::string> set = {"model.num_hidden_layers=3", "batch.recompute=" + recompute};
    const Plan plan = explain(Config::parse(tiny_config(4, "bf16-mixed"), set));
    return nlohmann::json::parse(plan.json)["memory"]["activations"].get<std::size_t>();
  };
  EXPECT_LT(activations("attention"), activations("none"));
  EXPECT_LT(activations("block"), activations("attention"));
}

TEST(Run, IsNotOverwrittenByDefault) {
  const TemporaryFolder folder;
  const Config config = Config::parse(tiny_config(3, "32-true"));
  const std::string first = train(config, into(folder / "run")).weights_xxh64;
  try {
    train(config, into(folder / "run"));
    FAIL() << "the second run was not refused";
  } catch (const FileError& e) {
    EXPECT_NE(std::string(e.what()).find("--resume"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("--overwrite"), std::string::npos) << e.what();
  }
  TrainOptions over = into(folder / "run");
  over.overwrite = true;
  EXPECT_EQ(train(config, over).weights_xxh64, first);
}

TEST(Run, TakesTokensFromMemoryAndChecksThem) {
  const TemporaryFolder folder;
  const Config config = Config::parse(tiny_config(2, "32-true"));
  TrainOptions o = into(folder / "run");
  for (int i = 0; i < 2000; ++i) o.data.tokens.push_back(i % 7);
  EXPECT_EQ(train(config, o).steps, 2);
  o.data.tokens[13] = 256;
  o.out = folder / "other";
  EXPECT_THROW(train(config, o), ConfigError);
}

TEST(Run, ARuleThatMatchesNothingIsAnErrorThatNamesTheNearest) {
  const TemporaryFolder folder;
  try {
    train(Config::parse(tiny_config(2, "bf16-mixed"), {}, {std::nullopt, {"lm_haed: compute=f32"}}),
          into(folder / "run"));
    FAIL() << "the rule was taken";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("lm_head"), std::string::npos) << e.what();
  }
}

TEST(Run, AnExplainedPlanHoldsItsPredictionsAlsoInJson) {
  const Config config = Config::parse(tiny_config(2, "bf16-mixed"));
  const Plan plan = explain(config);
  const nlohmann::json json = nlohmann::json::parse(plan.json);
  for (const char* key : {"policy", "loss_scale", "ops", "casts", "memory", "seconds_per_step",
                          "largest_micro_batch_size", "machine", "targets", "warnings"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["memory"]["peak"], plan.predicted_peak_bytes);
  EXPECT_EQ(plan.largest_micro_batch_size, 4);
  EXPECT_GT(plan.seconds_per_step, 0);
}

TEST(Run, ThePlanCoversOtherMachines) {
  const Config config = Config::parse(tiny_config(2, "bf16-mixed"));
  const Plan plan = explain(config, {}, {"v100", "h100"});
  ASSERT_EQ(plan.targets.size(), 2U);
  EXPECT_EQ(plan.targets[0].warnings.size(), 1U);
  EXPECT_TRUE(plan.targets[1].warnings.empty());
  EXPECT_EQ(plan.warnings, plan.targets[0].warnings);
  for (const TargetPlan& t : plan.targets) {
    EXPECT_GT(t.seconds_per_step, 0) << t.name;
    EXPECT_EQ(t.largest_micro_batch_size, 4) << t.name;
    EXPECT_GT(t.sequences_that_fit, 4) << t.name;
    EXPECT_NE(plan.text.find("on " + t.name), std::string::npos) << plan.text;
  }
  // Five times the memory fits five times the sequences: the weights are negligible here.
  EXPECT_NEAR(static_cast<double>(plan.targets[1].sequences_that_fit) /
                  static_cast<double>(plan.targets[0].sequences_that_fit),
              5, 0.05);
  const nlohmann::json json = nlohmann::json::parse(plan.json)["targets"];
  ASSERT_EQ(json.size(), 2U);
  for (const nlohmann::json& format : json[0]["formats"]) {
    if (format["format"] == "bf16") {
      EXPECT_EQ(format["native"], false);
      EXPECT_EQ(format["needed"], true);
    }
  }
  EXPECT_EQ(json[0]["seconds_per_step"], plan.targets[0].seconds_per_step);
}

TEST(Run, PlansReportIfBitsDependOnTheSplit) {
  const auto exceptions = [](const char* policy) {
    const Plan plan = explain(Config::parse(tiny_config(2, policy)));
    const nlohmann::json said = nlohmann::json::parse(plan.json)["exceptions"];
    EXPECT_EQ(plan.text.find("\nbits    depend on micro_batch_size: ") != std::string::npos, !said.empty());
    return said.dump();
  };
  EXPECT_EQ(exceptions("bf16-mixed"), "[]");
  EXPECT_EQ(exceptions("fp8-hybrid"), "[]");
  EXPECT_NE(exceptions("bf16-true").find("grads=bf16"), std::string::npos);
  EXPECT_NE(exceptions("32-true; lm_head: grads=tf32").find("grads=tf32"), std::string::npos);
  EXPECT_NE(exceptions("fp8-hybrid scaling=current").find("scaling=current"), std::string::npos);
}

TEST(Run, NativeOnlyAcceptsExactlyTheNativeFormatsOfThePlan) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& policy, const std::vector<std::string>& targets) {
    const std::vector<std::string> native = {"precision.native_only=true"};
    try {
      explain(Config::parse(tiny_config(2, policy), native), {}, targets);
      return std::string();
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
  };
  for (const char* policy : {"32-true", "64-true", "bf16-mixed", "16-true", "compute=tf32",
                             "bf16-true optimizer=bf16 rounding=stochastic"}) {
    bool native = true;
    const nlohmann::json plan = nlohmann::json::parse(explain(Config::parse(tiny_config(2, policy))).json);
    for (const nlohmann::json& f : plan["machine"]["formats"]) native = native && f["how"] == "native";
    EXPECT_EQ(refused(policy, {}).empty(), native) << policy << ": " << refused(policy, {});
  }
  EXPECT_NE(refused("16-mixed", {}).find("f16 is converted"), std::string::npos);
  for (const auto& [policy, what] :
       {std::pair{"accumulate=f16 accumulate_block=8", "f16 is converted"},
        {"accumulate=tf32", "tf32 is simulated"},
        {"output=e4m3", "e4m3 is simulated"},
        {"saturate=true", "saturation of values beyond the range is simulated by code of this program"},
        {"flush_subnormals=true", "flushing of subnormals to zero is simulated by code of this program"},
        {"32-true; *: op=softmax compute=f16", "f16 is converted"}}) {
    EXPECT_NE(refused(policy, {}).find(what), std::string::npos) << policy << ": " << refused(policy, {});
  }
  EXPECT_FALSE(refused("32-true; *: op=softmax compute=bf16", {}).empty());
  EXPECT_NE(refused("accumulate=f16 accumulate_block=8", {"h100"})
                .find("h100 has no sums rounded to f16 after every 8 terms"),
            std::string::npos);
  EXPECT_EQ(refused("bf16-mixed", {"h100"}), "");
  EXPECT_NE(refused("bf16-mixed", {"h100", "v100"}).find("v100 has no bf16"), std::string::npos);
  const std::vector<std::string> native = {"precision.native_only=true"};
  EXPECT_THROW(train(Config::parse(tiny_config(2, "16-mixed"), native), into(folder / "run")), ConfigError);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  const Config config = Config::parse(tiny_config(2, "32-true"), native);
  EXPECT_EQ(Config::parse(config.toml()).toml(), config.toml());
  EXPECT_NE(config.toml().find("native_only = true"), std::string::npos);
}

TEST(Run, ContinuesFromAModelDirectory) {
  const TemporaryFolder folder;
  const Summary first = train(Config::parse(tiny_config(6, "32-true")), into(folder / "first"));
  const std::string text =
      std::regex_replace(tiny_config(3, "32-true"), std::regex(R"(\[model\][^\[]*)"),
                         "[model]\npath = \"" + (folder / "first/model").string() + "\"\n");
  const Summary second = train(Config::parse(text), into(folder / "second"));
  EXPECT_LT(second.first_loss, first.first_loss);
}

TEST(Generation, GivesTheLogProbabilitiesThatATraceGives) {
  const TemporaryFolder folder;
  train(Config::parse(tiny_config(3, "bf16-mixed")), into(folder / "run"));
  GenerateOptions o;
  o.prompt = "Ada said";
  o.max_new_tokens = 12;
  o.temperature = 1;
  o.seed = 7;
  const Generation g = generate(folder / "run/model", o);
  ASSERT_EQ(g.ids.size(), 12U);
  ASSERT_EQ(g.log_probs.size(), 12U);
  EXPECT_EQ(generate(folder / "run/model", o).ids, g.ids);
  TraceOptions t;
  t.model = folder / "run/model";
  t.ids.push_back(g.prompt_ids);
  t.ids.front().insert(t.ids.front().end(), g.ids.begin(), g.ids.end());
  const Trace traced = trace(t);
  const auto log_probs = std::ranges::find(traced.tensors, "log_probs", &Tensor::name);
  ASSERT_NE(log_probs, traced.tensors.end());
  ASSERT_EQ(log_probs->dtype, "F32");
  std::vector<float> all(log_probs->bytes.size() / sizeof(float));
  std::memcpy(all.data(), log_probs->bytes.data(), log_probs->bytes.size());
  ASSERT_EQ(all.size(), t.ids.front().size() - 1);
  for (std::size_t i = 0; i < g.ids.size(); ++i)
    EXPECT_EQ(g.log_probs[i], static_cast<double>(all[g.prompt_ids.size() - 1 + i])) << i;
  o.prompt.clear();
  o.prompt_ids = {1, 300};
  EXPECT_THROW(generate(folder / "run/model", o), ConfigError);
}

TEST(Rules, ThatMatchNothingAreErrorsOfAnAudit) {
  const Precision misspelt{"16-mixed", {"modle.layers: compute=f16"}};
  try {
    audit(Config::parse(tiny_config(2, "32-true"), {}, misspelt), {});
    ADD_FAILURE() << "the rule was accepted";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("matches nothing: did you mean \"model.layers\"?"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace mantissa::api
