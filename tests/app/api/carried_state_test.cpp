// Runs whose rows go on from the states of the step before (data.carry_state).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using testing::has;
using testing::into;
using testing::read_all;
using testing::TemporaryFolder;
using testing::timeless;

constexpr const char* kModel =
    "model_type = \"rwkv7\"\nhidden_size = 32\nhead_dim = 16\nnum_hidden_layers = 2\nvocab_size = 256\n";

std::string config(const std::string& policy, const std::string& data = "carry_state = true\n",
                   const std::string& more = "", const std::string& model = kModel, int steps = 7) {
  return "[run]\nsteps = " + std::to_string(steps) + "\n[model]\n" + model +
         "[data]\nsource = \"kk\"\ntokenizer = \"byte\"\nsequence_length = 24\nvalidation = 0.1\n" + data +
         "[batch]\nglobal_batch_size = 4\nmicro_batch_size = 2\n[optimizer]\nlr = 1e-2\n"
         "[schedule]\nwarmup_steps = 2\n[checkpoint]\ninterval = 1\nkeep = 20\n[log]\ntensorboard = false\n"
         "[precision]\npolicy = \"" +
         policy + "\"\n" + more;
}

std::vector<double> losses_of(const std::filesystem::path& run) {
  std::vector<double> losses;
  for (const nlohmann::json& step : testing::steps_of(run)) losses.push_back(step["loss"].get<double>());
  return losses;
}

std::string refusal(const std::string& text) {
  const TemporaryFolder folder;
  try {
    train(Config::parse(text), into(folder / "run"));
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

class CarriedStateUnder : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Policies, CarriedStateUnder,
                         ::testing::Values("32-true", "bf16-mixed", "16-mixed",
                                           "bf16-mixed; *: steps=3: state=bf16"),
                         [](const auto& p) {
                           return std::regex_replace(std::string(p.param), std::regex("[^a-z0-9]"), "_");
                         });

TEST_P(CarriedStateUnder, StoppedAndResumedAnywhereEndWithTheBytesOfARunThatWasNot) {
  mantissa::testing::expect_same_bytes_from(Config::parse(config(GetParam())), {1, 3, 6});
}

TEST_P(CarriedStateUnder, MicroBatchesThreadsAndRecomputationChangeNoBit) {
  const TemporaryFolder folder;
  const std::string reference = train(Config::parse(config(GetParam())), into(folder / "a")).weights_xxh64;
  for (const char* change :
       {"[batch]\nglobal_batch_size = 4\nmicro_batch_size = 4\n",
        "[batch]\nglobal_batch_size = 4\nmicro_batch_size = 1\nrecompute = \"block\"\n"}) {
    std::string text = config(GetParam());
    text.replace(text.find("[batch]"), text.find("[optimizer]") - text.find("[batch]"), change);
    text.replace(text.find("[run]\n"), 6, "[run]\nthreads = 1\n");
    TrainOptions o = into(folder / "b");
    o.overwrite = true;
    EXPECT_EQ(train(Config::parse(text), o).weights_xxh64, reference) << change;
  }
}

/// With a rate at which no weight changes, the losses of two steps are those of two halves of longer rows. (A
/// new model ignores its states, because its output matrices are zeros.)
TEST(CarriedState, GivesTwoRowsTheLossOfOneOfTwiceTheirLength) {
  const TemporaryFolder folder;
  train(Config::parse(config("32-true")), into(folder / "base"));
  const std::string model = "path = \"" + (folder / "base/model").string() + "\"\n";
  TrainOptions o;
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 2 * 24 * 3 + 1; ++i) tokens.push_back((i * i + 7 * i) % 251);
  o.data.tokens = tokens;
  const auto run = [&](const char* name, int length, const char* carry, int steps) {
    std::string text = config("32-true", carry, "", model, steps);
    text.replace(text.find("sequence_length = 24"), 20, "sequence_length = " + std::to_string(length));
    text.replace(text.find("validation = 0.1"), 16, "validation = 0");
    text.replace(text.find("global_batch_size = 4\nmicro_batch_size = 2"), 42, "global_batch_size = 1");
    text.replace(text.find("lr = 1e-2"), 9, "lr = 1e-30");
    o.out = folder / name;
    train(Config::parse(text), o);
    return losses_of(folder / name);
  };
  const std::vector<double> whole = run("whole", 48, "carry_state = true\n", 3);
  const std::vector<double> halves = run("halves", 24, "carry_state = true\n", 6);
  const std::vector<double> apart = run("apart", 24, "shuffle = false\n", 6);
  ASSERT_EQ(whole.size(), 3U);
  ASSERT_EQ(halves.size(), 6U);
  constexpr double kDigit = 1e-8;  // metrics.jsonl has nine digits, and losses lie below 10
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR((halves[2 * i] + halves[2 * i + 1]) / 2, whole[i], kDigit) << i;
    EXPECT_GT(std::abs(apart[2 * i + 1] - halves[2 * i + 1]), 1000 * kDigit)
        << "the second half knows the first";
  }
  EXPECT_EQ(apart[0], halves[0]) << "the first row of a stream begins with empty states";
}

TEST(CarriedState, IsPartOfTheStateAndOfTheForecast) {
  const TemporaryFolder folder;
  train(Config::parse(config("bf16-mixed")), into(folder / "run"));
  const std::string state = read_all(folder / "run/state/step-00000007/state.safetensors");
  EXPECT_TRUE(has(state, "carried.model.layers.0.attn.state"));
  EXPECT_TRUE(has(state, "carried.model.layers.1.ffn.token_shift.state"));
  const auto bytes = [](const std::string& data) {
    const Plan plan = explain(Config::parse(config("bf16-mixed", data)), {});
    return nlohmann::json::parse(plan.json)["memory"]["carried"].get<std::int64_t>();
  };
  EXPECT_EQ(bytes(""), 0);
  // Two layers, four rows, two heads of 16 × 16 in f32, before and after a step and between steps.
  EXPECT_GE(bytes("carry_state = true\n"), std::int64_t{3} * 2 * 4 * 2 * 16 * 16 * 4);
}

TEST(CarriedState, IsRefusedWhereRowsDoNotFollowEachOther) {
  const std::string carry = "carry_state = true\n";
  const auto expect = [](const std::string& text, const std::string& part) {
    const std::string message = refusal(text);
    EXPECT_TRUE(has(message, "data.carry_state")) << message;
    EXPECT_TRUE(has(message, part)) << message;
    EXPECT_TRUE(has(message, "Fix: ")) << message;
  };
  expect(config("32-true", carry + "shuffle = true\n"), "got data.shuffle = true");
  expect(config("32-true", carry + "packing = true\n"), "got data.packing");
  expect(config("32-true", carry + "order = \"rwkv\"\n"), "got data.order = \"rwkv\"");
  expect(config("32-true", carry, "[train]\nobjective = \"sft\"\n"), "got train.objective = \"sft\"");
  expect(config("32-true", carry, "",
                "hidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
                "vocab_size = 256\n"),
         "such as rwkv7, got one with attention");
}

TEST(CarriedState, OfTooFewRowsIsAnError) {
  TrainOptions o;
  o.data.tokens = std::vector<std::int32_t>(3 * 24 + 1, 65);
  const TemporaryFolder folder;
  o.out = folder / "run";
  std::string text = config("32-true");
  text.replace(text.find("validation = 0.1"), 16, "validation = 0");
  try {
    train(Config::parse(text), o);
    FAIL() << "trained";
  } catch (const Error& e) {
    EXPECT_TRUE(has(e.what(), "expected at least batch.global_batch_size = 4 rows for data.carry_state"))
        << e.what();
  }
}

/// A step whose gradients overflow leaves the states as they were.
TEST(CarriedState, StaysFiniteAfterASkippedStep) {
  const TemporaryFolder folder;
  const std::string text = config("16-mixed loss_scale=dynamic:2^40", "carry_state = true\n", "", kModel, 24);
  const Summary summary = train(Config::parse(text), into(folder / "run"));
  EXPECT_GT(summary.skipped, 0);
  for (const double loss : losses_of(folder / "run")) EXPECT_TRUE(std::isfinite(loss));
}

}  // namespace
}  // namespace mantissa::api
