// Runs that several ranks share, as threads of this process: the bits of one.
#include "mantissa/app/api/ranks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stop_token>
#include <thread>

#include "app/api/tiny.h"
#include "engine/comm/run_ranks.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using mantissa::testing::has;
using mantissa::testing::into;
using mantissa::testing::read_all;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::timeless;

/// A run of `steps` steps of 24 rows in 24 shards, with a validation after every third.
std::string config_of(const std::string& policy, int steps = 4, const std::string& more = "") {
  std::string text = mantissa::testing::tiny_config(steps, policy, 1);
  const std::string at = "global_batch_size = 4\n";
  text.replace(text.find(at), at.size(), "global_batch_size = 24\nshards = 24\n");
  return text + more;
}

/// Runs `config` on `size` ranks. Returns the summary of the first one.
Summary train_on(int size, const std::string& config, const std::filesystem::path& out,
                 std::optional<std::int64_t> resume = {}, bool overwrite = false) {
  std::vector<Summary> all(static_cast<std::size_t>(size));
  std::exception_ptr failure;
  mantissa::testing::run_ranks(size, [&](comm::Communicator& ranks) {
    TrainOptions options = into(out);
    options.hardware.threads = 1;
    options.resume = resume;
    options.overwrite = overwrite;
    options.ranks = Ranks(std::shared_ptr<comm::Communicator>(&ranks, [](auto*) {}));
    try {
      all[static_cast<std::size_t>(ranks.rank())] = train(Config::parse(config), options);
    } catch (...) {
      if (ranks.leads()) failure = std::current_exception();
      ranks.leave(comm::Ending::failed);
    }
  });
  if (failure) std::rethrow_exception(failure);
  for (std::size_t r = 1; r < all.size(); ++r)
    EXPECT_TRUE(all[r].weights_xxh64.empty()) << "only the first one tells";
  return all.front();
}

/// A stage of ZeRO, as lines of a config.
std::string zero(int stage) {
  return "[distributed]\nzero = " + std::to_string(stage) +
         "\ncheck_interval = 2\npersistence_threshold = 40\n";
}
constexpr int kStages[] = {0, 1, 2, 3};

class RanksUnder : public ::testing::TestWithParam<const char*> {};

TEST_P(RanksUnder, HaveTheBitsOfOneProcess) {
  const TemporaryFolder folder;
  const Summary alone = train_on(1, config_of(GetParam()), folder / "1");
  ASSERT_FALSE(alone.weights_xxh64.empty());
  const char* const files[] = {"metrics.jsonl", "health.jsonl", "state/step-00000003/state.safetensors"};
  for (const int stage : kStages) {
    for (const int size : stage == 0 ? std::vector{2, 3, 4, 8} : std::vector{2, 3, 8}) {
      const std::filesystem::path out = folder / (std::to_string(size) + "-" + std::to_string(stage));
      const std::string config = config_of(GetParam(), 4, zero(stage));
      EXPECT_EQ(train_on(size, config, out).weights_xxh64, alone.weights_xxh64) << size << " zero " << stage;
      for (const char* file : files)
        EXPECT_TRUE(timeless(read_all(out / file)) == timeless(read_all(folder / "1" / file)))
            << size << " zero " << stage << ": " << file;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, RanksUnder,
                         ::testing::Values("32-true", "64-true", "bf16-mixed", "bf16-mixed reduce=bf16",
                                           "bf16-true rounding=stochastic", "16-mixed",
                                           "fp8-hybrid reduce=e5m2", "bf16-mixed compute=nvfp4",
                                           "bf16-mixed optimizer=dynamic8-256",
                                           "bf16-mixed weights=nvfp4; *.down_proj: weights=none",
                                           "bf16-mixed reduce=bf16 reduce_rounding=stochastic",
                                           "reduce=e4m3 reduce_rounding=toward-zero"),
                         [](const auto& i) { return "policy" + std::to_string(i.index); });

TEST(Ranks, ContinueTheRunOfAnyOtherNumber) {
  const TemporaryFolder folder;
  const std::string config = config_of("bf16-mixed", 8);
  const std::string whole = train_on(1, config, folder / "whole").weights_xxh64;
  const std::string metrics = timeless(read_all(folder / "whole/metrics.jsonl"));
  train_on(4, config, folder / "run");
  for (const auto& [size, step, stage] : {std::tuple(1, 3, 0), {2, 3, 1}, {3, 6, 0}, {8, 3, 1}, {1, 6, 1}}) {
    const std::string other = config_of("bf16-mixed", 8, zero(stage));
    EXPECT_EQ(train_on(size, other, folder / "run", step).weights_xxh64, whole) << size << " zero " << stage;
    EXPECT_EQ(timeless(read_all(folder / "run/metrics.jsonl")), metrics) << size << " zero " << stage;
  }
}

/// Gradients of several micro-batches accumulate on every rank before they go to their owners.
TEST(Ranks, AccumulateTheMicroBatchesOfAShardUnderEveryStage) {
  const TemporaryFolder folder;
  const auto accumulating = [](const std::string& more) {
    std::string text = config_of("bf16-mixed reduce=bf16", 4, more);
    const std::string shards = "shards = 24\n";
    return text.replace(text.find(shards), shards.size(), "shards = 8\n");
  };
  const std::string alone = train_on(1, accumulating(""), folder / "alone").weights_xxh64;
  for (const int stage : kStages)
    EXPECT_EQ(train_on(4, accumulating(zero(stage)), folder / std::to_string(stage)).weights_xxh64, alone)
        << stage;
}

/// Optimizers with products, with states of other shapes than their weights, and with compensations.
TEST(Ranks, UpdateTheirPartsByAnyOptimizer) {
  const TemporaryFolder folder;
  int run = 0;
  for (const auto& [policy, optimizer] : {std::pair("bf16-mixed", "muon"),
                                          {"32-true", "adafactor"},
                                          {"bf16-true kahan=true", "lion"},
                                          {"bf16-true", "sgd"}}) {
    const std::string set = std::string("optimizer.name=\"") + optimizer + "\"";
    const auto result = [&](int size, int stage) {
      return train_on(size, Config::parse(config_of(policy, 4, zero(stage)), {set}).toml(),
                      folder / std::to_string(++run))
          .weights_xxh64;
    };
    const std::string alone = result(1, 0);
    for (const int stage : {1, 3}) EXPECT_EQ(result(3, stage), alone) << optimizer << " zero " << stage;
  }
}

/// More ranks than parameters that could be dealt: some own nothing.
TEST(Ranks, MayOwnNothing) {
  const TemporaryFolder folder;
  const std::string frozen = "[[optimizer.group]]\nmatch = \"model.layers\"\nfreeze = true\n";
  const std::string alone = train_on(1, config_of("bf16-mixed", 4, frozen), folder / "1").weights_xxh64;
  for (const int stage : kStages) {
    const std::filesystem::path out = folder / ("8-" + std::to_string(stage));
    EXPECT_EQ(train_on(8, config_of("bf16-mixed", 4, frozen + zero(stage)), out).weights_xxh64, alone)
        << stage;
  }
}

/// Rules that begin and end with steps: another plan reads the weights in other formats.
TEST(Ranks, ChangeTheirFormatsBetweenSteps) {
  const TemporaryFolder folder;
  const std::string rules =
      "rules = [{match = \"*\", compute = \"f32\", steps = \"1:3\"}, {match = \"*\", compute = \"e4m3\", "
      "steps = \"3:\"}]\n";
  const std::string alone = train_on(1, config_of("bf16-mixed", 5, rules), folder / "alone").weights_xxh64;
  for (const int stage : kStages) {
    const std::filesystem::path out = folder / std::to_string(stage);
    EXPECT_EQ(train_on(3, config_of("bf16-mixed", 5, rules + zero(stage)), out).weights_xxh64, alone)
        << stage;
  }
}

TEST(Ranks, TrainAdapters) {
  const TemporaryFolder folder;
  train_on(1, config_of("32-true", 2), folder / "base");
  const auto config = [&](const std::string& more) {
    std::string text =
        config_of("bf16-mixed", 4, "[adapter]\nkind = \"lora\"\nrank = 4\ndora = true\n" + more);
    const std::size_t begin = text.find("hidden_size"), end = text.find("[data]");
    return text.replace(begin, end - begin, "path = \"" + (folder / "base/model").string() + "\"\n");
  };
  const auto result = [&](int size, const std::string& more, const std::string& out) {
    train_on(size, config(more), folder / out);
    return read_all(folder / out / "adapter/adapter_model.safetensors");
  };
  const std::string alone = result(1, "", "alone");
  ASSERT_FALSE(alone.empty());
  for (const int stage : kStages)
    EXPECT_TRUE(result(3, zero(stage), std::to_string(stage)) == alone) << stage;
}

/// The load-balancing loss is one over each row, whichever rank has it.
TEST(Ranks, BalanceExperts) {
  const TemporaryFolder folder;
  std::string text = config_of("bf16-mixed");
  text.replace(text.find("[model]\n"), 8,
               "[model]\nmodel_type = \"mixtral\"\nnum_local_experts = 4\nnum_key_value_heads = 2\n");
  text += "[train]\nrouter_aux_loss_coef = 0.1\n";
  const Summary alone = train_on(1, text, folder / "1");
  EXPECT_TRUE(has(read_all(folder / "1/metrics.jsonl"), "\"validation_router_aux_loss\""));
  for (const int stage : {1, 3}) {
    const std::string out = "3, stage " + std::to_string(stage);
    EXPECT_EQ(train_on(3, text + zero(stage), folder / out).weights_xxh64, alone.weights_xxh64) << out;
    EXPECT_EQ(timeless(read_all(folder / (out + "/metrics.jsonl"))),
              timeless(read_all(folder / "1/metrics.jsonl")));
  }
}

TEST(Ranks, CarryTheStatesOfRowsToTheNextStep) {
  const std::string config =
      "[run]\nsteps = 7\n[model]\nmodel_type = \"rwkv7\"\nhidden_size = 32\nhead_dim = 16\nnum_hidden_layers = 2\n"
      "vocab_size = 256\n[data]\nsource = \"kk\"\ntokenizer = \"byte\"\nsequence_length = 24\nvalidation = 0.1\n"
      "carry_state = true\n[batch]\nglobal_batch_size = 4\nmicro_batch_size = 1\nshards = 4\n[optimizer]\nlr = 1e-2\n"
      "[checkpoint]\ninterval = 3\nkeep = 5\n[precision]\npolicy = \"bf16-mixed\"\n";
  const TemporaryFolder folder;
  const std::string whole = train_on(1, config, folder / "1").weights_xxh64;
  for (const int size : {2, 4}) {
    const std::filesystem::path out = folder / std::to_string(size);
    EXPECT_EQ(train_on(size, config, out).weights_xxh64, whole) << size;
    EXPECT_EQ(train_on(6 - size, config, out, 3).weights_xxh64, whole)
        << size << " after a resume on another number";
    EXPECT_EQ(train_on(size, config + zero(3), folder / ("zero" + std::to_string(size))).weights_xxh64, whole)
        << size << " under ZeRO 3";
  }
}

/// A stop of a rank that does not lead may come within a step or a validation, which is then done again.
TEST(Ranks, LoseNothingByAStopOfAnotherRank) {
  const TemporaryFolder folder;
  const std::string config = config_of("32-true", 9);
  const std::string whole = train_on(1, config, folder / "whole").weights_xxh64;
  const std::string metrics = timeless(read_all(folder / "whole/metrics.jsonl"));
  int interrupted = 0;
  for (int delay = 0; delay < 24; ++delay) {
    std::stop_source stop;
    bool first_was_stopped = false;
    mantissa::testing::run_ranks(2, [&](comm::Communicator& ranks) {
      TrainOptions options = into(folder / "run");
      options.overwrite = true;
      options.hardware.threads = 1;
      options.ranks = Ranks(std::shared_ptr<comm::Communicator>(&ranks, [](auto*) {}));
      Events events;
      events.on_step = [&](const Step& step) {
        if (step.step != 3) return;  // a validation follows
        std::thread([stop, delay]() mutable {
          std::this_thread::sleep_for(std::chrono::microseconds(200 * delay));
          stop.request_stop();
        }).detach();
      };
      const Summary s =
          train(Config::parse(config), options, events, ranks.leads() ? std::stop_token() : stop.get_token());
      if (ranks.leads()) first_was_stopped = s.interrupted;
    });
    if (first_was_stopped) ++interrupted;
    EXPECT_EQ(train_on(2, config, folder / "run", 0).weights_xxh64, whole) << delay;
    EXPECT_EQ(timeless(read_all(folder / "run/metrics.jsonl")), metrics) << delay;
  }
  EXPECT_GT(interrupted, 0);
}

TEST(Ranks, SkipTheStepsThatOneProcessSkips) {
  const TemporaryFolder folder;
  const std::string config = config_of("16-mixed", 6, "[precision.loss_scale]\ninitial_scale_power = 24\n");
  const Summary alone = train_on(1, config, folder / "1");
  EXPECT_GT(alone.skipped, 0);
  for (const int stage : kStages) {
    const std::string out = "4-" + std::to_string(stage);
    EXPECT_EQ(train_on(4, config + zero(stage), folder / out).skipped, alone.skipped) << stage;
    EXPECT_EQ(timeless(read_all(folder / (out + "/metrics.jsonl"))),
              timeless(read_all(folder / "1/metrics.jsonl")))
        << stage;
  }
}

TEST(Ranks, StopAtTheSameValueWithTheSameMessage) {
  const TemporaryFolder folder;
  const std::string config = config_of("reduce=f16 loss_scale=dynamic:2^40", 3,
                                       "[precision.loss_scale]\nmin_loss_scale = 549755813888\n");
  std::vector<std::string> messages;
  for (const auto& [size, stage] : {std::pair(1, 0), {3, 0}, {3, 1}, {3, 3}}) {
    try {
      train_on(size, config + zero(stage), folder / (std::to_string(size) + std::to_string(stage)));
      ADD_FAILURE() << size << " ranks did not stop";
    } catch (const RunStopped& e) {
      messages.emplace_back(e.what());
    }
  }
  ASSERT_EQ(messages.size(), 4U);
  for (const std::string& message : messages) EXPECT_EQ(message, messages[0]);
}

TEST(Ranks, ANumberThatDoesNotFitNamesTheShardsThatDo) {
  const TemporaryFolder folder;
  try {
    train_on(5, config_of("32-true"), folder / "run");
    FAIL() << "the run should not start";
  } catch (const ConfigError& e) {
    EXPECT_TRUE(has(e.what(),
                    "batch.shards = 24: 5 ranks cannot share them equally. Fix: set "
                    "batch.global_batch_size to a multiple of 5, or start fewer ranks"))
        << e.what();
  }
  try {
    train_on(16, config_of("32-true"), folder / "run");
    FAIL() << "the run should not start";
  } catch (const ConfigError& e) {
    EXPECT_TRUE(has(e.what(), "16 ranks cannot")) << e.what();
  }
}

}  // namespace
}  // namespace mantissa::api
