// Training on pairs: a reference with the bits of the training pass, bits that do not depend on how a run is
// divided, continued runs, adapters, and reward models as files.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <stop_token>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/precision/policy/presets.h"

namespace mantissa::api::preference_test {
namespace {

using nlohmann::json;
using testing::has;
using testing::into;
using testing::read_all;
using testing::TemporaryFolder;
using testing::timeless;

/// Pairs of different lengths, in bytes.
void write_pairs(const std::filesystem::path& path, int count) {
  std::ofstream out(path);
  for (int r = 0; r < count; ++r) {
    const auto text = [r](int length, char first) {
      return std::string(static_cast<std::size_t>(length), static_cast<char>(first + r % 26));
    };
    out << json{{"prompt", text(1 + r * 7 % 11, 'a')},
                {"chosen", text(1 + r * 5 % 9, 'A')},
                {"rejected", text(1 + r * 3 % 8, 'b')},
                {"margin", 0.125 * (r % 5)}}
               .dump()
        << "\n";
  }
}

constexpr const char* kSizes =
    "hidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = 2\nnum_attention_heads = 2\nvocab_size = "
    "256\n";

struct Options {
  std::string objective = "dpo";
  std::string policy = "32-true";
  std::string model = kSizes;
  std::string more = {};  // sections
  int steps = 4;
  int batch = 4, micro = 2;
};

std::string config_of(const Options& o) {
  return "[run]\nsteps = " + std::to_string(o.steps) + "\n[model]\n" + o.model + "[train]\nobjective = \"" +
         o.objective +
         "\"\n[data]\nsource = \"pairs.jsonl\"\ntemplate = \"none\"\ntokenizer = \"byte\"\nsequence_length = "
         "32\n"
         "validation = 0.1\n[batch]\nglobal_batch_size = " +
         std::to_string(o.batch) + "\nmicro_batch_size = " + std::to_string(o.micro) +
         "\n[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_steps = 1\n[checkpoint]\ninterval = 2\n[precision]\n"
         "policy = \"" +
         o.policy + "\"\n" + o.more;
}

struct Ran {
  Summary summary;
  std::vector<Step> steps;
  std::vector<std::string> notes;

  double metric(std::size_t step, std::string_view name) const {
    for (const auto& [key, value] : steps.at(step).metrics) {
      if (key == name) return value;
    }
    ADD_FAILURE() << "no " << name;
    return NAN;
  }
};
Ran run(const TemporaryFolder& folder, const std::string& name, const Options& o, int threads = 1) {
  if (!std::filesystem::exists(folder / "pairs.jsonl")) write_pairs(folder / "pairs.jsonl", 30);
  std::ofstream(folder / (name + ".toml")) << config_of(o);
  Ran ran;
  Events events;
  events.on_step = [&](const Step& step) { ran.steps.push_back(step); };
  events.on_note = [&](const std::string& note) { ran.notes.push_back(note); };
  TrainOptions options = into(folder / name);
  options.hardware.threads = threads;
  ran.summary = train(Config::load(folder / (name + ".toml")), options, events);
  return ran;
}

/// Writes a model with trained weights and, under fp8, trained scales.
std::string trained_model(const TemporaryFolder& folder, const std::string& policy) {
  run(folder, "start", {.policy = policy, .steps = 3});
  return "path = \"start/model\"\n";
}

constexpr const char* kLora = "[adapter]\nkind = \"lora\"\nrank = 4\ntarget = [\"*\"]\n";

/// Before the first update the reference has the training pass's bits: no pair has a margin, and each loss is
/// log 2.
void expect_no_margin(const Ran& ran) {
  EXPECT_EQ(static_cast<float>(ran.steps[0].loss), static_cast<float>(std::log(2.0)));
  EXPECT_EQ(ran.metric(0, "margin"), 0);
  EXPECT_EQ(ran.metric(0, "chosen_reward"), 0);
  EXPECT_EQ(ran.metric(0, "rejected_reward"), 0);
  EXPECT_NE(ran.metric(1, "chosen_reward"), 0);
  EXPECT_NE(ran.metric(1, "rejected_reward"), 0);
}

std::vector<std::string> policies() {
  std::vector<std::string> all;
  for (const precision::Preset& preset : precision::presets()) all.emplace_back(preset.name);
  all.insert(all.end(), {"bf16-mixed compute=mxfp8", "bf16-mixed compute=nvfp4 scaling=delayed",
                         "fp8-hybrid scaling=current", "bf16-true rounding=stochastic kahan=false"});
  return all;
}

TEST(Dpo, BeginsAtLog2WithTheWeightsOfTheSeedUnderEveryPolicy) {
  for (const std::string& policy : policies()) {
    SCOPED_TRACE(policy);
    const TemporaryFolder folder;
    expect_no_margin(run(folder, "r", {.policy = policy, .steps = 2}));
  }
}

/// As long as no weight moves, every step has the bits of the reference, although the scales of 8-bit and
/// nvfp4 tensors change with each step.
TEST(Dpo, StaysAtLog2WhileNoWeightMoves) {
  for (const char* policy : {"32-true", "16-mixed", "fp8-hybrid", "fp8-hybrid scale_margin=1",
                             "bf16-mixed compute=nvfp4 scaling=delayed"}) {
    SCOPED_TRACE(policy);
    const TemporaryFolder folder;
    // Every update is smaller than half of the spacing of any weight.
    Options still{.policy = policy};
    write_pairs(folder / "pairs.jsonl", 30);
    std::ofstream(folder / "r.toml") << std::regex_replace(config_of(still), std::regex("1e-2"), "1e-30");
    Events events;
    int steps = 0;
    events.on_step = [&](const Step& step) {
      ++steps;
      EXPECT_EQ(static_cast<float>(step.loss), static_cast<float>(std::log(2.0))) << step.step;
      EXPECT_GT(step.grad_norm, 0);
    };
    train(Config::load(folder / "r.toml"), into(folder / "r"), events);
    EXPECT_EQ(steps, 4);
  }
}

TEST(Dpo, BeginsAtLog2WithTrainedWeightsAndScales) {
  for (const char* policy : {"32-true", "bf16-mixed", "16-mixed", "bf16-true", "fp8-hybrid",
                             "bf16-mixed compute=nvfp4 scaling=delayed", "fp8-hybrid params=bf16"}) {
    SCOPED_TRACE(policy);
    const TemporaryFolder folder;
    expect_no_margin(
        run(folder, "r", {.policy = policy, .model = trained_model(folder, policy), .steps = 2}));
  }
}

/// The reference is the base, whose weights exist once. A reference of its own has memory of its own.
TEST(Dpo, OfAnAdapterBeginsAtLog2AndSharesTheBase) {
  for (const char* policy : {"32-true", "bf16-mixed", "16-mixed", "fp8-hybrid"}) {
    SCOPED_TRACE(policy);
    const TemporaryFolder folder;
    const std::string model = trained_model(folder, policy);
    expect_no_margin(run(folder, "r", {.policy = policy, .model = model, .more = kLora, .steps = 2}));
    const auto reference = [&](const std::string& name) {
      return json::parse(explain(Config::load(folder / (name + ".toml"))).json)["memory"]["reference"]
          .get<std::int64_t>();
    };
    EXPECT_EQ(reference("r"), 0);
    run(folder, "apart",
        {.policy = policy,
         .model = model,
         .more = std::string(kLora) + "[dpo]\nreference = \"start/model\"\n",
         .steps = 2});
    EXPECT_GT(reference("apart"), 0);
    EXPECT_EQ(read_all(folder / "apart/adapter/adapter_model.safetensors"),
              read_all(folder / "r/adapter/adapter_model.safetensors"));
  }
}

TEST(Dpo, OfAQuantizedBaseBeginsAtLog2) {
  const TemporaryFolder folder;
  // Blocks of nf4 have 64 weights of a row.
  run(folder, "start",
      {.policy = "bf16-mixed",
       .model = std::regex_replace(kSizes, std::regex("hidden_size = 32"), "hidden_size = 64"),
       .steps = 3});
  const std::string model = "path = \"start/model\"\n";
  for (const char* base : {"int8", "nf4", "bf16"}) {
    SCOPED_TRACE(base);
    expect_no_margin(run(folder, base,
                         {.policy = "bf16-mixed",
                          .model = model,
                          .more = std::string(kLora) + "base = \"" + base + "\"\n",
                          .steps = 2}));
  }
}

/// The starting weights are the reference also if they are named, and the reference does not move.
TEST(Dpo, NamesItsReferenceOrKeepsTheStart) {
  const TemporaryFolder folder;
  const std::string model = trained_model(folder, "bf16-mixed");
  const Ran own = run(folder, "own", {.policy = "bf16-mixed", .model = model});
  const Ran named =
      run(folder, "named",
          {.policy = "bf16-mixed", .model = model, .more = "[dpo]\nreference = \"start/model\"\n"});
  EXPECT_EQ(named.summary.weights_xxh64, own.summary.weights_xxh64);
  const Ran other =
      run(folder, "other",
          {.policy = "bf16-mixed", .model = model, .more = "[dpo]\nreference = \"own/model\"\n"});
  EXPECT_NE(other.metric(0, "chosen_reward"), 0);
  // The last step of `own` measured its weights against those of the start, `other` the reverse.
  EXPECT_GT(own.metric(3, "margin"), 0);
  EXPECT_LT(other.metric(0, "margin"), 0);
}

TEST(Dpo, RefusesAReferenceWithAnotherVocabulary) {
  const TemporaryFolder folder;
  Options small{.steps = 1};
  small.model.replace(small.model.find("256"), 3, "300");
  run(folder, "small", small);
  try {
    run(folder, "r", {.more = "[dpo]\nreference = \"small/model\"\n"});
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_TRUE(has(e.what(), "has a vocabulary of 300, but the model in training one of 256")) << e.what();
  }
}

/// simpo and orpo read the model in training alone, and learn the order of the pairs.
TEST(Dpo, HoldsNoReferenceForALossWithoutOne) {
  for (const char* loss : {"sigmoid", "simpo", "orpo"}) {
    SCOPED_TRACE(loss);
    const TemporaryFolder folder;
    const std::string more = std::string("[dpo]\nbeta = 1.0\nloss = \"") + loss + "\"\n";
    const Ran ran = run(folder, "r", {.policy = "bf16-mixed", .more = more, .steps = 12, .micro = 1});
    const json plan = json::parse(explain(Config::load(folder / "r.toml")).json);
    EXPECT_EQ(plan["memory"]["reference"] == 0, std::string(loss) != "sigmoid") << plan["memory"];
    EXPECT_GT(ran.metric(11, "margin"), ran.metric(0, "margin"));
    const Ran other = run(folder, "s", {.policy = "bf16-mixed", .more = more, .steps = 12, .micro = 4}, 2);
    EXPECT_EQ(other.summary.weights_xxh64, ran.summary.weights_xxh64);
  }
}

TEST(Preferences, BitsDoNotDependOnMicroBatchesAndThreads) {
  for (const char* objective : {"dpo", "reward", "kto"}) {
    for (const char* policy : {"32-true", "bf16-mixed", "16-mixed", "fp8-hybrid"}) {
      SCOPED_TRACE(::testing::Message() << objective << " " << policy);
      const TemporaryFolder folder;
      const Ran one = run(folder, "one", {.objective = objective, .policy = policy, .micro = 1});
      EXPECT_EQ(run(folder, "four", {.objective = objective, .policy = policy, .micro = 4}, 2)
                    .summary.weights_xxh64,
                one.summary.weights_xxh64);
      EXPECT_EQ(one.steps.size(), 4U);
      EXPECT_TRUE(one.summary.validation_loss.has_value());
    }
  }
}

/// The state has nothing of the reference, which is made again, with the scales of its step.
TEST(Preferences, ARunThatStopsEndsWithTheSameBytes) {
  struct Case {
    const char *objective, *policy;
    bool trained, adapts;
  };
  for (const Case& c : {Case{"dpo", "32-true", false, false},
                        {"dpo", "fp8-hybrid", true, false},
                        {"dpo", "16-mixed", true, true},
                        {"kto", "fp8-hybrid", true, false},
                        {"kto", "bf16-mixed", true, true},
                        {"reward", "bf16-mixed", true, false},
                        {"reward", "bf16-mixed", true, true}}) {
    SCOPED_TRACE(::testing::Message() << c.objective << " " << c.policy << (c.adapts ? " adapter" : ""));
    const TemporaryFolder folder;
    Options o{.objective = c.objective, .policy = c.policy, .steps = 7};
    if (c.trained) o.model = trained_model(folder, c.policy);
    if (c.adapts) o.more = kLora;
    run(folder, "whole", o);
    std::stop_source stop;
    std::ofstream(folder / "cut.toml") << config_of(o);
    Events events;
    events.on_step = [&](const Step& step) {
      if (step.step == 5) stop.request_stop();
    };
    const Config read = Config::load(folder / "cut.toml");
    ASSERT_TRUE(train(read, into(folder / "cut"), events, stop.get_token()).interrupted);
    TrainOptions resume = into(folder / "cut");
    resume.resume = 0;
    train(read, resume);
    const char* result = c.adapts ? "adapter/adapter_model.safetensors" : "model/model.safetensors";
    EXPECT_FALSE(read_all(folder / "whole" / result).empty());
    EXPECT_EQ(read_all(folder / "cut" / result), read_all(folder / "whole" / result));
    EXPECT_EQ(timeless(read_all(folder / "cut/metrics.jsonl")),
              timeless(read_all(folder / "whole/metrics.jsonl")));
  }
}

/// A rule that begins at a step changes the reference's formats too.
TEST(Dpo, FollowsRulesThatChangeDuringTheRun) {
  const TemporaryFolder folder;
  const char* rules = "rules = [{match = \"*\", steps = \"2:\", compute = \"f16\"}]\n";
  const Ran ran = run(folder, "r", {.policy = "bf16-mixed", .more = rules});
  expect_no_margin(ran);
  EXPECT_EQ(run(folder, "again", {.policy = "bf16-mixed", .more = rules, .micro = 4}).summary.weights_xxh64,
            ran.summary.weights_xxh64);
}

TEST(Preferences, LearnTheOrderOfPairs) {
  for (const char* objective : {"dpo", "reward"}) {
    for (const char* policy : {"32-true", "16-mixed"}) {
      SCOPED_TRACE(::testing::Message() << objective << " " << policy);
      const TemporaryFolder folder;
      const Ran ran = run(folder, "r", {.objective = objective, .policy = policy, .steps = 30});
      EXPECT_LT(ran.steps.back().loss, 0.5 * ran.steps.front().loss);
      EXPECT_EQ(ran.metric(29, "accuracy"), 1);
    }
  }
}

/// A scale beyond the range of f16 is halved, and the steps that overflow change no weight.
TEST(Preferences, SkipStepsWhoseGradientsOverflow) {
  for (const char* objective : {"dpo", "reward"}) {
    SCOPED_TRACE(objective);
    const TemporaryFolder folder;
    const Ran ran =
        run(folder, "r", {.objective = objective, .policy = "16-mixed loss_scale=dynamic:2^30", .steps = 60});
    EXPECT_TRUE(ran.steps[0].skipped);
    EXPECT_FALSE(ran.steps.back().skipped);
    EXPECT_LT(ran.steps.back().loss, 0.5 * ran.steps[0].loss);
  }
}

TEST(RewardModel, IsAClassifierOfOneLabel) {
  const TemporaryFolder folder;
  run(folder, "start", {});
  const Ran ran = run(folder, "r", {.objective = "reward", .model = "path = \"start/model\"\n"});
  const json config = json::parse(read_all(folder / "r/model/config.json"));
  EXPECT_EQ(config["architectures"], json({"LlamaForSequenceClassification"}));
  EXPECT_EQ(config["id2label"], json({{"0", "LABEL_0"}}));
  const io::SafetensorsReader file((folder / "r/model/model.safetensors").string());
  ASSERT_NE(file.find("score.weight"), nullptr);
  EXPECT_EQ(file.find("score.weight")->shape, (std::vector<std::int64_t>{1, 32}));
  EXPECT_EQ(file.find("lm_head.weight"), nullptr);
  EXPECT_NE(file.find("model.norm.weight"), nullptr);
  // It continues from there: the first loss is that of the trained scores.
  const Ran next = run(folder, "next", {.objective = "reward", .model = "path = \"r/model\"\n", .steps = 1});
  EXPECT_LT(next.steps[0].loss, ran.steps[0].loss);
}

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

TEST(RewardModel, IsRefusedWhereTokensNeedProbabilities) {
  const TemporaryFolder folder;
  run(folder, "r", {.objective = "reward", .steps = 1});
  EXPECT_TRUE(has(refusal([&] { generate(folder / "r/model", {.prompt = "a"}); }), "is a reward model"));
  EXPECT_TRUE(
      has(refusal([&] { run(folder, "d", {.model = "path = \"r/model\"\n"}); }),
          "r/model is a reward model (LlamaForSequenceClassification), which train.objective = \"dpo\" "
          "cannot train"));
}

/// transformers reads a score before padding, so the id that ends rows must not be the padding's.
TEST(RewardModel, HasNoPaddingIdThatEndsItsRows) {
  const TemporaryFolder folder;
  const Ran ends =
      run(folder, "ends",
          {.objective = "reward", .model = std::string(kSizes) + "pad_token_id = 0\n", .steps = 1});
  EXPECT_TRUE(json::parse(read_all(folder / "ends/model/config.json"))["pad_token_id"].is_null());
  EXPECT_TRUE(std::ranges::any_of(
      ends.notes, [](const std::string& note) { return has(note, "pad_token_id = 0 ends rows"); }));
  run(folder, "other",
      {.objective = "reward", .model = std::string(kSizes) + "pad_token_id = 7\n", .steps = 1});
  EXPECT_EQ(json::parse(read_all(folder / "other/model/config.json"))["pad_token_id"], 7);
}

TEST(RewardModel, AsAnAdapterHasItsHeadAndContinues) {
  const TemporaryFolder folder;
  const std::string model = trained_model(folder, "bf16-mixed");
  const Ran first =
      run(folder, "first", {.objective = "reward", .policy = "bf16-mixed", .model = model, .more = kLora});
  const json config = json::parse(read_all(folder / "first/adapter/adapter_config.json"));
  EXPECT_EQ(config["task_type"], "SEQ_CLS");
  EXPECT_EQ(config["modules_to_save"], json({"score"}));
  const io::SafetensorsReader file((folder / "first/adapter/adapter_model.safetensors").string());
  ASSERT_NE(file.find("base_model.model.score.weight"), nullptr);
  const Ran next = run(folder, "next",
                       {.objective = "reward",
                        .policy = "bf16-mixed",
                        .model = model,
                        .more = "[adapter]\nkind = \"lora\"\npath = \"first\"\n"});
  EXPECT_LT(next.steps[0].loss, first.steps[0].loss);
  EXPECT_TRUE(has(refusal([&] {
                    run(folder, "d",
                        {.model = model, .more = "[adapter]\nkind = \"lora\"\npath = \"first\"\n"});
                  }),
                  "is a reward model"));
}

/// Before the first update every ratio is 1 and the divergence 0, so each loss is 1 − σ(0).
TEST(Kto, BeginsAtOneHalfUnderEveryPolicy) {
  for (const std::string& policy : policies()) {
    SCOPED_TRACE(policy);
    const TemporaryFolder folder;
    const Ran ran = run(folder, "r", {.objective = "kto", .policy = policy, .steps = 2});
    EXPECT_EQ(ran.steps[0].loss, 0.5);
    EXPECT_EQ(ran.metric(0, "kl"), 0);
  }
}

TEST(Kto, LearnsWhichAnswersAreDesirable) {
  for (const char* loss : {"kto", "apo-zero"}) {
    SCOPED_TRACE(loss);
    const TemporaryFolder folder;
    const Ran ran = run(folder, "r",
                        {.objective = "kto",
                         .policy = "16-mixed",
                         .more = "[kto]\nbeta = 0.5\nloss = \"" + std::string(loss) + "\"\n",
                         .steps = 30,
                         .batch = 8});
    EXPECT_LT(ran.steps.back().loss, 0.5 * ran.steps.front().loss);
    EXPECT_GT(ran.metric(29, "margin"), 1);
  }
}

TEST(Kto, WeighsBothKindsOfAnswers) {
  const TemporaryFolder folder;
  const auto first_loss = [&](const std::string& weights) {
    return run(folder, "r" + weights.substr(0, 2),
               {.objective = "kto", .more = "[kto]\n" + weights, .steps = 1, .batch = 8})
        .steps[0]
        .loss;
  };
  const double desirable = first_loss("undesirable_weight = 0\n"),
               undesirable = first_loss("desirable_weight = 0\n");
  EXPECT_GT(desirable, 0);
  EXPECT_GT(undesirable, 0);
  EXPECT_DOUBLE_EQ(desirable + undesirable, 0.5);
}

TEST(Kto, NeedsAnotherRowOfTheStep) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& more) {
    return refusal([&] { run(folder, "r", {.objective = "kto", .more = more, .batch = 1, .micro = 1}); });
  };
  EXPECT_TRUE(has(refused(""), "write at least 2"));
  EXPECT_EQ(
      run(folder, "r", {.objective = "kto", .more = "[kto]\nloss = \"apo-zero\"\n", .batch = 1, .micro = 1})
          .steps.size(),
      4U);
}

TEST(Preferences, AreComparedUnderSeveralPolicies) {
  const TemporaryFolder folder;
  write_pairs(folder / "pairs.jsonl", 30);
  std::ofstream(folder / "run.toml") << config_of({.steps = 3});
  const std::string text = explain(Config::load(folder / "run.toml")).text;
  EXPECT_TRUE(has(text, "reference ")) << text;
}

}  // namespace
}  // namespace mantissa::api::preference_test
