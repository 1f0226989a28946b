// Runs of a model of every family: stopped and resumed, split differently, recomputed, and loaded again.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "app/api/tiny.h"
#include "engine/model/tiny_families.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using mantissa::testing::into;
using mantissa::testing::read_all;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::timeless;
using mantissa::testing::tiny_config;
using mantissa::testing::tiny_families;
using mantissa::testing::TinyFamily;

const char* const kFamilyPolicies[] = {
#ifndef MANTISSA_SANITIZED
    "64-true", "32-true", "16-mixed", "fp8-hybrid",
#endif
    "bf16-mixed"};

class FamilyRun : public ::testing::TestWithParam<std::tuple<TinyFamily, const char*>> {
 protected:
  /// The run of tiny_config() with a model of the family and a vocabulary of bytes.
  Config config(int steps, int micro, const std::vector<std::string>& set = {}) const {
    nlohmann::json model = std::get<0>(GetParam()).config;
    model["vocab_size"] = 256;
    const std::filesystem::path file = folder_ / "config.json";
    std::ofstream(file) << model;
    return Config::parse(with_model(tiny_config(steps, std::get<1>(GetParam()), micro),
                                    "config = \"" + file.string() + "\"\n"),
                         set);
  }
  static std::string with_model(const std::string& run, const std::string& model) {
    return std::regex_replace(run, std::regex(R"(\[model\][^\[]*)"), "[model]\n" + model);
  }

  TemporaryFolder folder_;
};

/// A run of each family under one policy.
class FamilyState : public FamilyRun {};

std::string name_of(const ::testing::TestParamInfo<std::tuple<TinyFamily, const char*>>& i) {
  std::string name = std::get<0>(i.param).name + "_" + std::get<1>(i.param);
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Families, FamilyRun,
                         ::testing::Combine(::testing::ValuesIn(tiny_families()),
                                            ::testing::ValuesIn(kFamilyPolicies)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Families, FamilyState,
                         ::testing::Combine(::testing::ValuesIn(tiny_families()),
                                            ::testing::Values("bf16-mixed")),
                         name_of);

TEST_P(FamilyRun, StoppedAndResumedEndsWithTheBytesOfOneThatWasNot) {
  const Summary whole = train(config(7, 4), into(folder_ / "whole"));
  std::stop_source stop;
  Events events;
  events.on_step = [&](const Step& s) {
    if (s.step == 4) stop.request_stop();
  };
  EXPECT_TRUE(train(config(7, 4), into(folder_ / "parts"), events, stop.get_token()).interrupted);
  TrainOptions again = into(folder_ / "parts");
  again.resume = 0;
  again.hardware.threads = 1;
  const Summary rest = train(config(7, 2, {"batch.recompute=block"}), again);
  EXPECT_EQ(rest.weights_xxh64, whole.weights_xxh64);
  EXPECT_EQ(timeless(read_all(folder_ / "parts/metrics.jsonl")),
            timeless(read_all(folder_ / "whole/metrics.jsonl")));
  EXPECT_EQ(read_all(folder_ / "parts/model/model.safetensors"),
            read_all(folder_ / "whole/model/model.safetensors"));
}

TEST_P(FamilyRun, WritesAModelThatTrainingContinues) {
  const Summary first = train(config(12, 4), into(folder_ / "first"));
  EXPECT_LT(first.final_loss, first.first_loss);
  const Config next = Config::parse(with_model(tiny_config(2, std::get<1>(GetParam())),
                                               "path = \"" + (folder_ / "first/model").string() + "\"\n"));
  EXPECT_LT(train(next, into(folder_ / "second")).first_loss, first.first_loss);
  GenerateOptions o;
  o.prompt = "Ada";
  o.max_new_tokens = 5;
  EXPECT_EQ(generate(folder_ / "first/model", o).log_probs.size(), 5U);
}

/// States hold the parameters of the program, models the tensors of transformers.
TEST_P(FamilyState, HasTheTensorsOfItsModelInItsState) {
  train(config(2, 4), into(folder_ / "run"));
  const std::filesystem::path state = folder_ / "run/state/step-00000002", model = folder_ / "run/model";
  ConvertOptions o;
  o.in = state;
  o.out = folder_ / "converted";
  o.dtype = "f32";
  convert(o);
  EXPECT_TRUE(diff({folder_ / "converted", model, true}).equal);
  EXPECT_TRUE(diff({state, model, true}).equal);
}

TEST(ExpertsRun, RefusesFormatsInBlocksForExpertsAlone) {
  const TemporaryFolder folder;
  const auto run = [](const char* policy) {
    return Config::parse(std::regex_replace(
        tiny_config(2, policy), std::regex(R"(\[model\]\n)"),
        "[model]\nmodel_type = \"mixtral\"\nnum_local_experts = 4\nnum_key_value_heads = 2\n"));
  };
  try {
    train(run("bf16-mixed compute=mxfp8"), into(folder / "run"));
    FAIL() << "the run was not refused";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("--rule '*.experts.*: compute=bf16'"), std::string::npos)
        << e.what();
  }
  const char* const kExpertsInBf16 = "bf16-mixed compute=mxfp8; *.experts.*: compute=bf16";
  EXPECT_GT(train(run(kExpertsInBf16), into(folder / "run")).first_loss, 0);
}

/// Adapters of experts are trained, continued, merged, and used beside their base.
TEST(ExpertsRun, TrainsAdaptersOfExperts) {
  const TemporaryFolder folder;
  const auto run = [](const std::string& model, const std::vector<std::string>& set, int steps,
                      int micro = 2) {
    return Config::parse(std::regex_replace(tiny_config(steps, "32-true", micro),
                                            std::regex(R"(\[model\][^\[]*)"), "[model]\n" + model),
                         set);
  };
  train(run("model_type = \"mixtral\"\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 1\n"
            "num_attention_heads = 2\nnum_key_value_heads = 2\nnum_local_experts = 4\nvocab_size = 256\n",
            {}, 1),
        into(folder / "base"));
  const std::string base = "path = \"" + (folder / "base/model").string() + "\"\n";
  const std::vector<std::string> lora = {"adapter.kind=lora", "adapter.rank=2",
                                         "adapter.target=[\"*.experts\"]"};
  const Summary whole = train(run(base, lora, 6, 4), into(folder / "whole"));
  EXPECT_LT(whole.final_loss, whole.first_loss);
  EXPECT_EQ(train(run(base, lora, 6, 1), into(folder / "parts")).weights_xxh64, whole.weights_xxh64);
  const std::string adapter = (folder / "whole/adapter").string();
  const Summary next =
      train(run(base, {"adapter.kind=lora", "adapter.path=\"" + adapter + "\""}, 1), into(folder / "next"));
  EXPECT_LT(next.first_loss, whole.first_loss);
  MergeOptions merge_options;
  merge_options.model = folder / "base/model";
  merge_options.adapter = adapter;
  merge_options.out = folder / "merged";
  merge(merge_options);
  const Summary merged =
      train(run("path = \"" + (folder / "merged").string() + "\"\n", {}, 1), into(folder / "more"));
  EXPECT_NEAR(merged.first_loss, next.first_loss, 1e-5);
}

/// The rows of a token's experts have the random bits of the token.
TEST(ExpertsRun, RoundsStochasticallyToTheSameBitsInAnySplit) {
  const TemporaryFolder folder;
  const auto run = [&](const char* policy, int micro, int threads) {
    TrainOptions options = into(folder / "run");
    options.overwrite = true;
    options.hardware.threads = threads;
    return train(Config::parse(std::regex_replace(
                     tiny_config(2, policy, micro), std::regex(R"(\[model\]\n)"),
                     "[model]\nmodel_type = \"mixtral\"\nnum_local_experts = 4\nnum_key_value_heads = 2\n")),
                 options)
        .weights_xxh64;
  };
  for (const char* policy :
       {"bf16-mixed; *: rounding=stochastic", "fp8-hybrid gradient_rounding=stochastic"}) {
    const std::string whole = run(policy, 4, 1);
    EXPECT_EQ(run(policy, 1, 2), whole) << policy;
    EXPECT_EQ(run(policy, 2, 1), whole) << policy;
  }
}

/// Weights of the run's config, and of its model's.
TEST(BalanceRun, AddsTheLossThatTheConfigOrTheModelAsksFor) {
  const TemporaryFolder folder;
  std::string notes;
  Events events;
  events.on_note = [&](const std::string& note) { notes += note + "\n"; };
  const auto run = [&](const std::string& model, const std::vector<std::string>& set) {
    TrainOptions options = into(folder / "run");
    options.overwrite = true;
    const std::string text =
        std::regex_replace(tiny_config(3, "bf16-mixed"), std::regex(R"(\[model\]\n)"), "[model]\n" + model);
    notes.clear();
    return train(Config::parse(text, set), options, events).weights_xxh64;
  };
  const std::string mixtral = "model_type = \"mixtral\"\nnum_local_experts = 4\nnum_key_value_heads = 2\n",
                    asks = mixtral + "output_router_logits = true\n";
  const std::string plain = run(mixtral, {}), balanced = run(asks, {});
  EXPECT_NE(notes.find("the load-balancing loss of weight 0.001"), std::string::npos) << notes;
  EXPECT_NE(balanced, plain);
  EXPECT_EQ(run(asks + "router_aux_loss_coef = 1e-3\n", {}), balanced) << "the default of transformers";
  EXPECT_EQ(run(mixtral, {"train.router_aux_loss_coef=1e-3"}), balanced);
  EXPECT_EQ(run(asks, {"train.router_aux_loss_coef=0"}), plain);
  EXPECT_EQ(run(asks, {"batch.micro_batch_size=1"}), balanced);
  run(mixtral, {"train.router_aux_loss_coef=0.5"});
  const std::string metrics = read_all(folder / "run/metrics.jsonl");
  const auto line = nlohmann::json::parse(metrics.substr(0, metrics.find('\n')));
  EXPECT_NEAR(line.at("router_aux_loss").get<double>(), 2, 0.5) << "2 of 4 experts, near balance";
}

TEST(BalanceRun, RefusesModelsWithoutExpertsAndPartsOfRows) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& model, const std::vector<std::string>& set) -> std::string {
    try {
      train(Config::parse(std::regex_replace(tiny_config(2, "32-true"), std::regex(R"(\[model\]\n)"),
                                             "[model]\n" + model),
                          set),
            into(folder / "run"));
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(message("", {"train.router_aux_loss_coef=0.1"}).find("this llama model has no experts"),
            std::string::npos);
  const std::string asks =
      "model_type = \"mixtral\"\nnum_local_experts = 4\nnum_key_value_heads = 2\noutput_router_logits = true\n";
  EXPECT_NE(message(asks, {"distributed.sequence_shards=2"}).find("one over whole rows"), std::string::npos);
}

TEST(Gpt2Run, RefusesSequencesThatAreLongerThanItsPositions) {
  const TemporaryFolder folder;
  const std::string model =
      "model_type = \"gpt2\"\nn_embd = 16\nn_layer = 1\nn_head = 2\nvocab_size = 256\nn_positions = 31\n";
  const std::string run =
      std::regex_replace(tiny_config(2, "32-true"), std::regex(R"(\[model\][^\[]*)"), "[model]\n" + model);
  try {
    train(Config::parse(run), into(folder / "run"));
    FAIL() << "the run was not refused";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("sequences of 32 tokens are longer than the 31 learned positions"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace mantissa::api
