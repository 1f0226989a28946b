// Stochastic rounding of the sums over shards in a run: which random bits it uses.
#include <gtest/gtest.h>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::train {
namespace {

constexpr const char* kConfig = R"(
[run]
steps = 2
seed = 9
[model]
hidden_size = 16
intermediate_size = 24
num_hidden_layers = 1
num_attention_heads = 2
vocab_size = 32
[data]
source = "kk"
tokenizer = "byte"
sequence_length = 11
[batch]
global_batch_size = 2
micro_batch_size = 1
shards = 2
[optimizer]
lr = 1e-30
)";

const runtime::Device& device() {
  static const auto opened = runtime::open_device({.threads = 2});
  return *opened;
}

/// A trainer whose rows are all alike, so both shards of every step have the same gradients, and whose
/// updates are too small to change a weight.
Trainer trainer_under(const std::string& policy) {
  const config::RunConfig config = config::parse_config(kConfig, "run.toml", {}, {policy, {}});
  std::vector<std::int32_t> ids(11 * 8 + 1);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i % 11);
  return {config, weights::find_model(config.model),
          text::Dataset(std::move(ids), {.sequence_length = 11}, "ids"), device()};
}

std::vector<float> values_of(const Trainer::NamedGradient& g) {
  std::vector<float> values(static_cast<std::size_t>(g.count));
  load_row(g.values.data, g.values.type, 0, values.size(), values.data());
  return values;
}

TEST(ReduceRounding, HasTheRandomBitsOfSeedStepNameNodeAndElement) {
  Trainer exact = trainer_under("32-true"), rounded = trainer_under("reduce=bf16 reduce_rounding=stochastic");
  const auto round = [](float x, std::uint32_t random) {
    return static_cast<float>(decode(encode(x, Scalar::bf16, {Rounding::stochastic}, random), Scalar::bf16));
  };
  for (const std::int64_t step : {1, 2}) {
    exact.advance();
    rounded.advance();
    const std::vector<Trainer::NamedGradient> sums = exact.last_gradients(), found = rounded.last_gradients();
    ASSERT_EQ(sums.size(), found.size());
    for (std::size_t p = 0; p < sums.size(); ++p) {
      const std::uint64_t name = hash_name(sums[p].name);
      const RandomStream first = comm::random_bits(9, step, name, {0, 1}),
                         second = comm::random_bits(9, step, name, {1, 1}),
                         both = comm::random_bits(9, step, name, {0, 2});
      std::vector<float> expected = values_of(sums[p]);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const float shard = expected[i] / 2;  // exact, as is the sum of two equal numbers
        expected[i] = round(round(shard, first.bits(i)) + round(shard, second.bits(i)), both.bits(i));
      }
      EXPECT_EQ(values_of(found[p]), expected) << found[p].name << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace mantissa::train
