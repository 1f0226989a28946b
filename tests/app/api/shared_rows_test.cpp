// Runs whose rows several ranks share: bits that do not depend on the number of ranks, and the losses of
// whole rows.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "app/api/on_ranks.h"
#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api::shared_rows_test {
namespace {

using mantissa::testing::has;
using mantissa::testing::into;
using mantissa::testing::on_ranks;
using mantissa::testing::read_all;
using mantissa::testing::steps_of;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::timeless;

/// Steps of 8 rows of 32 tokens in 4 shards of two micro-batches each, which `parts` ranks share.
std::string config_of(const std::string& policy, int parts, int zero = 0, int steps = 4, int micro = 1) {
  std::string text = mantissa::testing::tiny_config(steps, policy, micro);
  const std::string at = "global_batch_size = 4\n";
  text.replace(text.find(at), at.size(), "global_batch_size = 8\nshards = 4\n");
  return text + "[distributed]\nzero = " + std::to_string(zero) +
         "\ncheck_interval = 2\npersistence_threshold = 40\nsequence_shards = " + std::to_string(parts) +
         "\n";
}

Summary run(int ranks, const std::string& config, const std::filesystem::path& out,
            std::optional<std::int64_t> resume = {}, const Data& data = {}) {
  const auto body = [&](const Ranks& own) {
    TrainOptions options = into(out);
    options.hardware.threads = 1;
    options.resume = resume;
    options.data = data;
    options.ranks = own;
    return train(Config::parse(config), options);
  };
  return ranks == 1 ? body({}) : on_ranks(ranks, body).front();
}

class SharedRows : public ::testing::TestWithParam<const char*> {};

TEST_P(SharedRows, HaveTheBitsOfOneProcess) {
  const TemporaryFolder folder;
  const bool rounds_gradients = has(GetParam(), "bf16-true");  // after each micro-batch
  for (const int parts : {2, 3}) {
    const std::filesystem::path one = folder / ("one-" + std::to_string(parts));
    const Summary alone = run(1, config_of(GetParam(), parts), one);
    ASSERT_FALSE(alone.weights_xxh64.empty());
    for (const auto& [groups, zero, micro] :
         {std::tuple(1, 0, 2), {1, 2, 1}, {2, 0, 1}, {2, 1, 2}, {2, 3, 2}, {4, 2, 2}}) {
      const std::string name = std::to_string(parts) + "-" + std::to_string(groups) + std::to_string(zero);
      const Summary shared = run(
          parts * groups, config_of(GetParam(), parts, zero, 4, rounds_gradients ? 1 : micro), folder / name);
      EXPECT_EQ(shared.weights_xxh64, alone.weights_xxh64) << name;
      for (const char* file : {"metrics.jsonl", "health.jsonl", "state/step-00000003/state.safetensors"})
        EXPECT_TRUE(timeless(read_all(folder / name / file)) == timeless(read_all(one / file)))
            << name << ": " << file;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, SharedRows,
                         ::testing::Values("32-true", "bf16-mixed", "bf16-mixed reduce=bf16",
                                           "fp8-hybrid reduce=e5m2", "bf16-true rounding=stochastic"),
                         [](const auto& i) { return "policy" + std::to_string(i.index); });

/// A micro-batch's scales are those of a rank's tokens, so they do not depend on the number of groups.
TEST(SharedRows, HaveTheirOwnScalesUnderCurrentScaling) {
  const TemporaryFolder folder;
  const std::string policy = "fp8-hybrid scaling=current";
  const std::string one = run(1, config_of(policy, 2), folder / "one").weights_xxh64;
  for (const auto& [groups, zero] : {std::pair(1, 0), {1, 3}, {2, 0}, {4, 2}})
    EXPECT_EQ(run(2 * groups, config_of(policy, 2, zero), folder / std::to_string(10 * groups + zero))
                  .weights_xxh64,
              one)
        << groups << " groups, zero " << zero;
}

/// In f64 the orders of sums differ by far less than the losses' own changes from step to step.
void expect_same_losses(const std::filesystem::path& a, const std::filesystem::path& b, const char* what) {
  const auto first = steps_of(a), second = steps_of(b);
  ASSERT_EQ(first.size(), second.size());
  ASSERT_FALSE(first.empty());
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (const char* key : {"loss", "grad_norm"})
      EXPECT_NEAR(first[i][key].get<double>(), second[i][key].get<double>(), 1e-9) << what << " step " << i;
  }
}

TEST(SharedRows, HaveTheLossesAndGradientsOfWholeRows) {
  const TemporaryFolder folder;
  run(1, config_of("64-true", 1), folder / "whole");
  for (const int parts : {2, 3, 8}) {
    run(1, config_of("64-true", parts), folder / std::to_string(parts));
    expect_same_losses(folder / "whole", folder / std::to_string(parts), "parts");
  }
}

TEST(SharedRows, MayHaveDocumentsAndTheirOwnLengths) {
  const TemporaryFolder folder;
  Data data;
  for (int r = 0; r < 24; ++r) {
    Row row;
    for (int t = 0; t < 20 + r % 13; ++t) row.ids.push_back((7 * t * t + 3 * r) % 251);
    const auto length = static_cast<std::int64_t>(row.ids.size());
    if (r % 3 == 1) row.documents = {2, length - 11, 9};
    if (r % 3 == 2) row.documents = {length / 2, length - length / 2};
    data.rows.push_back(row);
  }
  std::string whole = config_of("64-true", 1), shared = config_of("64-true", 3);
  run(1, whole, folder / "whole", {}, data);
  run(1, shared, folder / "shared", {}, data);
  expect_same_losses(folder / "whole", folder / "shared", "documents");
  EXPECT_EQ(run(6, shared, folder / "six", {}, data).weights_xxh64,
            run(1, shared, folder / "one", {}, data).weights_xxh64);
}

TEST(SharedRows, ContinueOnAnyNumberOfRanksThatFits) {
  const TemporaryFolder folder;
  const std::string whole = run(1, config_of("bf16-mixed", 2, 0, 8), folder / "whole").weights_xxh64;
  run(8, config_of("bf16-mixed", 2, 2, 8), folder / "run");
  for (const auto& [ranks, step, zero] : {std::tuple(1, 3, 0), {2, 6, 3}, {4, 3, 1}})
    EXPECT_EQ(run(ranks, config_of("bf16-mixed", 2, zero, 8), folder / "run", step).weights_xxh64, whole)
        << ranks;
  try {
    run(1, config_of("bf16-mixed", 4, 0, 8), folder / "run", 3);
    FAIL() << "other bits";
  } catch (const ConfigError& e) {
    EXPECT_TRUE(has(e.what(), "distributed.sequence_shards was 2 and is 4 now")) << e.what();
  }
}

/// Ops in which ranks meet do not run once more for an observer.
TEST(SharedRows, AreObservedOnTheFirstRank) {
  const TemporaryFolder folder;
  const std::string observe = "[log]\nobserve = \"*\"\nobserve_interval = 2\n";
  const std::string plain = run(1, config_of("bf16-mixed", 2), folder / "plain").weights_xxh64;
  EXPECT_EQ(run(1, config_of("bf16-mixed", 2) + observe, folder / "one").weights_xxh64, plain);
  EXPECT_EQ(run(2, config_of("bf16-mixed", 2) + observe, folder / "two").weights_xxh64, plain);
  const std::string lines = read_all(folder / "one/observations.jsonl");
  EXPECT_TRUE(read_all(folder / "two/observations.jsonl") == lines);
  for (const char* op : {"\"matmul\"", "\"attention\"", "\"rope\""}) EXPECT_TRUE(has(lines, op)) << op;
}

TEST(SharedRows, GrowFromStageToStage) {
  const TemporaryFolder folder;
  const auto staged = [](int parts, int zero) {
    std::string text = config_of("bf16-mixed", parts, zero, 4, 1);
    const std::string steps = "steps = 4\n";
    text.erase(text.find(steps), steps.size());
    return text +
           "[[run.stage]]\nsteps = 3\nsequence_length = 32\n[[run.stage]]\nsteps = 2\nsequence_length = "
           "71\nglobal_batch_size = 4\n";
  };
  const std::string one = run(1, staged(3, 0), folder / "one").weights_xxh64;
  EXPECT_EQ(run(6, staged(3, 3), folder / "six").weights_xxh64, one);
}

/// The search for the first overflow runs rows again, on all ranks.
TEST(SharedRows, SkipTheStepsThatOneProcessSkips) {
  const TemporaryFolder folder;
  const std::string scale = "[precision.loss_scale]\ninitial_scale_power = 24\n";
  const Summary alone = run(1, config_of("16-mixed", 2, 0, 6) + scale, folder / "1");
  EXPECT_GT(alone.skipped, 0);
  for (const auto& [ranks, zero] : {std::pair(2, 0), {4, 3}}) {
    const std::string out = std::to_string(ranks);
    EXPECT_EQ(run(ranks, config_of("16-mixed", 2, zero, 6) + scale, folder / out).skipped, alone.skipped);
    EXPECT_EQ(timeless(read_all(folder / out / "metrics.jsonl")),
              timeless(read_all(folder / "1/metrics.jsonl")));
  }
}

TEST(SharedRows, EndWithTheErrorOfTheRun) {
  const TemporaryFolder folder;
  std::string config = config_of("32-true", 2);
  const std::string lr = "lr = 1e-2";
  config.replace(config.find(lr), lr.size(), "lr = 1e+38");
  EXPECT_THROW(run(1, config, folder / "run"), RunStopped);
  EXPECT_THROW(run(2, config, folder / "run2"), RunStopped);
}

TEST(SharedRows, OfRunsThatCannotShareThemAreErrorsWithACure) {
  const TemporaryFolder folder;
  const auto message = [&](int ranks, const std::string& config) -> std::string {
    try {
      run(ranks, config, folder / "run");
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "no error";
  };
  const std::pair<std::string, std::string> faults[] = {
      {message(3, config_of("32-true", 2)),
       "3 ranks are not a multiple of it. Fix: start 4 ranks or one process"},
      {message(6, config_of("32-true", 2)), "batch.shards = 4: 6 ranks cannot share them equally"},
      {message(1, config_of("32-true", 17)), "expected rows of at least 34 tokens, 2 for each rank, got 32"},
  };
  for (const auto& [found, expected] : faults) EXPECT_TRUE(has(found, expected)) << found;
}

/// The state travels on, and its gradient back.
class SharedRecurrence : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string recurrent(const std::string& policy, int parts, int zero = 0, int micro = 1) {
    std::string text = config_of(policy, parts, zero, 4, micro);
    const std::string heads = "num_attention_heads = 2\n", tie = "tie_word_embeddings = true\n",
                      size = "intermediate_size = 24\n", layers = "num_hidden_layers = 1";
    text.replace(text.find(heads), heads.size(), "model_type = \"rwkv7\"\nhead_dim = 8\n");
    text.replace(text.find(layers), layers.size(), "num_hidden_layers = 2");
    text.erase(text.find(tie), tie.size());
    return text.erase(text.find(size), size.size());
  }
};

TEST_P(SharedRecurrence, HasTheBitsOfOneProcess) {
  const TemporaryFolder folder;
  const std::string policy = GetParam();
  for (const int parts : {3}) {
    const std::string one = run(1, recurrent(policy, parts), folder / std::to_string(parts)).weights_xxh64;
    for (const auto& [groups, zero] : {std::pair(1, 3), {2, 2}})
      EXPECT_EQ(run(parts * groups, recurrent(policy, parts, zero),
                    folder / (std::to_string(parts) + "-" + std::to_string(groups)))
                    .weights_xxh64,
                one)
          << parts << " parts, " << groups << " groups";
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, SharedRecurrence,
                         ::testing::Values("32-true", "bf16-mixed state=bf16 rounding=stochastic"),
                         [](const auto& i) { return "policy" + std::to_string(i.index); });

/// The search for the overflow repeats ops, but none that the other ranks would have to run again.
TEST_F(SharedRecurrence, NamesTheFirstNonFiniteValue) {
  const TemporaryFolder folder;
  const std::string config = recurrent("16-mixed", 2) + "[precision.loss_scale]\ninitial_scale_power = 60\n";
  const Summary alone = run(1, config, folder / "one");
  EXPECT_GT(alone.skipped, 0);
  EXPECT_EQ(run(2, config, folder / "two").weights_xxh64, alone.weights_xxh64);
  EXPECT_EQ(read_all(folder / "one" / "health.jsonl"), read_all(folder / "two" / "health.jsonl"));
}

/// What other ranks would have to repeat too does not run once more: an observer asks for it on one of them.
TEST_F(SharedRecurrence, IsObservedOnTheFirstRank) {
  const TemporaryFolder folder;
  const std::string observe = "[log]\nobserve = \"*\"\nobserve_interval = 2\n";
  const std::string plain = run(1, recurrent("bf16-mixed", 2), folder / "plain").weights_xxh64;
  EXPECT_EQ(run(2, recurrent("bf16-mixed", 2) + observe, folder / "observed").weights_xxh64, plain);
  EXPECT_TRUE(has(read_all(folder / "observed/observations.jsonl"), "\"matmul\""));
}

/// The rows of a step continue those of the step before: the first rank of a group has both ends.
TEST_F(SharedRecurrence, ContinuesTheRowsOfTheStepBefore) {
  const TemporaryFolder folder;
  const auto carrying = [](const std::string& policy, int parts, int zero = 0, int micro = 1) {
    std::string text = recurrent(policy, parts, zero, micro);
    return text.insert(text.find("[data]\n") + 7, "carry_state = true\n");
  };
  int number = 0;
  for (const char* policy : {"bf16-mixed state=bf16", "32-true"}) {
    const auto out = [&] { return folder / std::to_string(++number); };
    const std::string one = run(1, carrying(policy, 2), out()).weights_xxh64;
    EXPECT_NE(run(1, recurrent(policy, 2), out()).weights_xxh64, one);
    for (const auto& [groups, zero, micro] : {std::tuple(1, 3, 2), {2, 0, 1}, {2, 2, 2}})
      EXPECT_EQ(run(2 * groups, carrying(policy, 2, zero, micro), out()).weights_xxh64, one)
          << policy << ", " << groups << " groups, zero " << zero;
    EXPECT_EQ(run(2, carrying(policy, 2), folder / std::to_string(number), 3).weights_xxh64, one)
        << "resumed";
  }
  run(1, carrying("64-true", 1), folder / "whole");
  run(1, carrying("64-true", 2), folder / "shared");
  expect_same_losses(folder / "whole", folder / "shared", "carried");
}

TEST_F(SharedRecurrence, HasTheLossesAndGradientsOfWholeRows) {
  const TemporaryFolder folder;
  run(1, recurrent("64-true", 1), folder / "whole");
  for (const int parts : {2, 5}) {
    run(1, recurrent("64-true", parts, 0, 2), folder / std::to_string(parts));
    expect_same_losses(folder / "whole", folder / std::to_string(parts), "recurrence");
  }
  Data data;
  for (int r = 0; r < 24; ++r) {
    Row row;
    for (int t = 0; t < 20 + r % 13; ++t) row.ids.push_back((7 * t * t + 3 * r) % 251);
    const auto length = static_cast<std::int64_t>(row.ids.size());
    if (r % 3 == 1) row.documents = {2, length - 11, 9};
    data.rows.push_back(row);
  }
  run(1, recurrent("64-true", 1), folder / "rows", {}, data);
  run(1, recurrent("64-true", 3), folder / "shared", {}, data);
  expect_same_losses(folder / "rows", folder / "shared", "documents");
}

}  // namespace
}  // namespace mantissa::api::shared_rows_test
