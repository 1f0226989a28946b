// What ranks that share a run take and send, as planned.
#include "mantissa/setup/forecast/ranks.h"

#include <gtest/gtest.h>

#include <fstream>

#include "engine/runtime/device.h"
#include "mantissa/core/base/error.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::forecast {
namespace {

/// A run of eight shards of one row, with this text in [distributed].
config::RunConfig config_of(const std::string& distributed, const std::string& policy = "bf16-mixed") {
  return config::parse_config(
      "[run]\nsteps = 9\n[model]\nhidden_size = 64\nintermediate_size = 128\nnum_hidden_layers = 4\n"
      "num_attention_heads = 2\nvocab_size = 256\n[data]\nsource = \"kk\"\nsequence_length = 32\n"
      "[batch]\nglobal_batch_size = 8\nmicro_batch_size = 1\nshards = 8\n[precision]\npolicy = \"" +
          policy + "\"\n[distributed]\n" + distributed,
      "run.toml");
}

RanksForecast forecast_of(const config::RunConfig& config, int ranks, int nodes = 1,
                          std::optional<Network> network = {}, std::span<const OtherPass> passes = {}) {
  const runtime::Device& device = mantissa::testing::best_device();
  const model::ModelConfig model = weights::find_model(config.model).config;
  const MemoryForecast alone = forecast_memory(programs::compile_parts(config, model, device), 0, 0);
  return forecast_ranks(config, model, device, ranks, nodes, network, {1e9, 1e9}, alone, passes);
}

std::size_t sum(const RanksForecast& f, std::size_t MemoryForecast::*purpose) {
  std::size_t all = 0;
  for (const RankForecast& r : f.of) all += r.memory.*purpose;
  return all;
}

double mean(const RanksForecast& f, double SentBytes::*kind) {
  double all = 0;
  for (const RankForecast& r : f.of) all += r.sent.*kind;
  return all / f.ranks;
}

TEST(RanksForecast, StagesDivideMoreAndMore) {
  const RanksForecast none = forecast_of(config_of("zero = 0\n"), 4),
                      first = forecast_of(config_of("zero = 1\n"), 4),
                      second = forecast_of(config_of("zero = 2\n"), 4),
                      third = forecast_of(config_of("zero = 3\npersistence_threshold = 65\n"), 4);
  EXPECT_EQ(sum(first, &MemoryForecast::moments), none.of[0].memory.moments);
  EXPECT_LT(4 * first.largest().memory.moments, 2 * none.of[0].memory.moments);
  EXPECT_EQ(first.of[0].memory.gradients, none.of[0].memory.gradients);
  EXPECT_EQ(second.of[0].memory.gradients, 0U);
  EXPECT_FALSE(first.streams);
  EXPECT_TRUE(second.streams);
  EXPECT_EQ(second.of[0].memory.copies, none.of[0].memory.copies);
  EXPECT_EQ(sum(third, &MemoryForecast::copies), none.of[0].memory.copies);
  EXPECT_LT(first.largest().memory.peak(), none.largest().memory.peak());
  EXPECT_LT(second.largest().memory.peak(), first.largest().memory.peak());
  EXPECT_LT(third.largest().memory.peak(), second.largest().memory.peak());
}

TEST(RanksForecast, RunOtherPassesOverTheirRowsAndHoldTheirWeights) {
  const config::RunConfig config = config_of("zero = 1\n");
  const model::ModelConfig model = weights::find_model(config.model).config;
  const auto parts = programs::compile_parts(config, model, mantissa::testing::best_device());
  const std::vector<OtherPass> passes = {{.program = parts.front().program, .weights = 1000, .runs = 1},
                                         {.program = parts.front().program, .weights = 10, .runs = 0.5}};
  const Network network{1e-5, 1e9};
  const RanksForecast two = forecast_of(config, 2, 2, network),
                      with = forecast_of(config, 2, 2, network, passes),
                      four = forecast_of(config, 4, 4, network),
                      with_four = forecast_of(config, 4, 4, network, passes);
  for (const RankForecast& r : with.of) EXPECT_EQ(r.memory.reference, 1010U);
  EXPECT_EQ(two.of[0].memory.reference, 0U);
  const double more = with.computing - two.computing;
  EXPECT_GT(more, two.computing) << "one and a half times the rows of a rank, without the update";
  EXPECT_DOUBLE_EQ(with_four.computing - four.computing, more / 2);
  EXPECT_DOUBLE_EQ(*with.seconds - *two.seconds, more);
  EXPECT_DOUBLE_EQ(*with.waiting, *two.waiting);
}

/// The formulas of docs/many-machines.md. Parts of parameters are whole cache lines, so means of ranks agree.
TEST(RanksForecast, SendsTheBytesOfTheFormulas) {
  const config::RunConfig config = config_of("zero = 0\n", "bf16-mixed reduce=bf16");
  double parameters = 0, products = 0;
  const auto parts = programs::compile_parts(config, weights::find_model(config.model).config,
                                             mantissa::testing::best_device());
  for (const plan::Slot& slot : parts.front().program->slots) {
    parameters += static_cast<double>(slot.shape.count());
    if (slot.shape.rank() == 2 && slot.name.find("embed") == std::string::npos)
      products += static_cast<double>(slot.shape.count());
  }
  constexpr double kOthers = 3, kRanks = 4, kShards = 2, kBytes = 2;
  EXPECT_EQ(mean(forecast_of(config, 4), &SentBytes::gradients), 2 * parameters * kBytes * kOthers / kRanks);
  const RanksForecast first = forecast_of(config_of("zero = 1\n", "bf16-mixed reduce=bf16"), 4);
  EXPECT_EQ(mean(first, &SentBytes::gradients), parameters * kBytes * kOthers / kRanks);
  EXPECT_EQ(mean(first, &SentBytes::gathered), 0);
  const RanksForecast third =
      forecast_of(config_of("zero = 3\npersistence_threshold = 65\n", "bf16-mixed reduce=bf16"), 4);
  EXPECT_EQ(mean(third, &SentBytes::gradients), kShards * parameters * kBytes * kOthers / kRanks);
  // Every matrix, forward and backward; the head once, where both are one, and the rows of the embedding in
  // f32.
  const double head = 256 * 64, embedding = 4 * 256 * 64;
  EXPECT_EQ(mean(third, &SentBytes::gathered),
            kShards * (2 * (products - head) * kBytes + head * kBytes + embedding) * kOthers / kRanks);
}

TEST(RanksForecast, CountsTheLinkThatRanksOfAMachineShare) {
  const config::RunConfig config = config_of("zero = 0\n");
  const RanksForecast f = forecast_of(config, 8, 2, Network{1e-5, 1e8});
  ASSERT_TRUE(f.seconds);
  const double sent = f.largest().sent.gradients;
  // In memory, the four ranks of a machine share its rate.
  const double transfers = sent * (4.0 / 7) * 4 / 1e8 + sent * (3.0 / 7) * 4 / 1e9;
  EXPECT_NEAR(*f.sending, transfers, 0.05 * transfers);  // parts of parameters are whole cache lines
  EXPECT_NEAR(*f.seconds, f.computing + *f.waiting, 1e-9);
  EXPECT_FALSE(forecast_of(config, 8, 2).seconds);
}

/// A link that is slow makes ranks wait; a fast one carries most of the gradients while they compute.
TEST(RanksForecast, FastLinksHideWhatTravelsDuringTheBackwardPhase) {
  for (const char* zero : {"zero = 0\n", "zero = 2\n", "zero = 3\npersistence_threshold = 65\n"}) {
    const config::RunConfig config = config_of(zero);
    const RanksForecast slow = forecast_of(config, 2, 2, Network{1e-6, 1e4}),
                        fast = forecast_of(config, 2, 2, Network{1e-6, 1e9});
    EXPECT_LT(*slow.hidden(), *fast.hidden()) << zero;
    EXPECT_GT(*fast.hidden(), 0.2) << zero;
    EXPECT_GT(*slow.waiting, 0.7 * *slow.sending) << zero;
  }
}

/// What starts together takes the time of the machine that sends or receives most: the owner of an embedding
/// receives all of it while nothing travels the other way.
TEST(RanksForecast, WaitsForTheOwnerOfAnEmbedding) {
  const RanksForecast f = forecast_of(config_of("zero = 2\n"), 2, 2, Network{1e-6, 1e6});
  double most = 0;
  for (const RankForecast& r : f.of) most = std::max(most, r.sent.gradients + r.sent.weights);
  EXPECT_GT(*f.sending, 1.05 * most / 1e6);
}

TEST(RanksForecast, NeedsAMeasuredNetwork) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "mantissa-network.json";
  const auto message = [&](const std::string& text) -> std::string {
    std::ofstream(path) << text;
    try {
      read_network(path);
    } catch (const FileError& e) {
      return e.what();
    }
    return "";
  };
  for (const char* text : {"{\"network\":null}", "[]", "{\"network\":{\"latency_seconds\":1e-6}}",
                           "{\"network\":{\"latency_seconds\":1e-6,\"bytes_per_second\":0}}"})
    EXPECT_NE(message(text).find("mpirun -n 2 mantissa doctor --json"), std::string::npos) << text;
  EXPECT_EQ(message("{\"network\":{\"latency_seconds\":1e-6,\"bytes_per_second\":1e9}}"), "");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace mantissa::forecast
