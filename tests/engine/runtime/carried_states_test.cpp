// Rows that go on from the states of rows before them, in whole models: the bits of one long row, and
// gradients that stop at the rows' ends.
#include <gtest/gtest.h>

#include <string>

#include "engine/model/tiny_families.h"
#include "engine/runtime/program.h"
#include "mantissa/core/base/error.h"

namespace mantissa::carried_states_test {
namespace {

using mantissa::testing::Bytes;
using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::options_for;
using mantissa::testing::Segments;

model::ModelConfig tiny_rwkv() {
  const auto tiny = mantissa::testing::tiny_models(mantissa::testing::facts_of("rwkv7")).front();
  return model::parse_model_config(tiny.config, tiny.name);
}

/// Copies the states after a run to those before the next.
void carry(const Compiled& c) {
  for (const plan::Buffer& b : c.program.buffers) {
    constexpr std::string_view kNext = ".next_state";
    if (b.home != plan::Home::state || !b.name.ends_with(kNext)) continue;
    const std::string before = b.name.substr(0, b.name.size() - kNext.size()) + ".state";
    const Bytes values = c.bytes(c.program.required(b.name), static_cast<std::size_t>(b.shape.count()));
    std::memcpy(c.executor->buffer(before).data, values.data(), values.size());
  }
}

class CarriedStates : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Policies, CarriedStates,
                         ::testing::Values("32-true", "64-true", "bf16-mixed", "bf16-true",
                                           "16-mixed state=bf16", "fp8-hybrid scaling=none"));

TEST_P(CarriedStates, GiveTwoRowsTheBitsOfOne) {
  constexpr std::int64_t kLength = 21, kFirst = 9;
  const model::ModelConfig config = tiny_rwkv();
  const precision::Policy policy = precision::Policy::parse(GetParam());
  const Data data(kLength, config.vocab_size, 3);
  const Segments one({kLength});
  Compiled whole(model::build_log_prob(config, kLength, kLength, true), policy, options_for(one));
  whole.randomize_vectors();
  data.feed(whole, 0, kLength);
  whole.executor->run(graph::Phase::forward, one.extent());
  const Bytes expected = whole.bytes(whole.program.required("log_prob"), kLength);

  for (const plan::Recompute recompute : {plan::Recompute::none, plan::Recompute::block}) {
    plan::CompileOptions options = options_for(one);
    options.recompute = recompute;
    model::Extras extras;
    extras.carried = 3;
    Compiled parts(model::build_log_prob(config, kLength, kLength, true, {}, extras), policy, options);
    parts.randomize_vectors();
    Bytes got;
    for (const auto& [begin, length] :
         {std::pair{std::int64_t{0}, kFirst}, std::pair{kFirst, kLength - kFirst}}) {
      Segments row({length});
      row.segments.front().position = begin;
      row.segments.front().slot = 2;
      data.feed(parts, static_cast<std::size_t>(begin), static_cast<std::size_t>(length));
      mantissa::testing::train_step(parts, row.extent());
      const Bytes values = parts.bytes(parts.program.required("log_prob"), static_cast<std::size_t>(length));
      got.insert(got.end(), values.begin(), values.end());
      carry(parts);
    }
    EXPECT_EQ(got, expected);
  }
}

/// The gradients of a row are those of the row alone, which begins with the same states as constants.
TEST(CarriedStates, HaveTheDerivativesWithTheStatesAsConstants) {
  const model::ModelConfig config = tiny_rwkv();
  const precision::Policy policy = precision::Policy::parse("64-true");
  constexpr std::int64_t kLength = 8;
  const Data data(2 * kLength, config.vocab_size, 3);
  model::Extras extras;
  extras.carried = 1;
  Segments row({kLength});
  Compiled c(model::build_log_prob(config, kLength, kLength, true, {}, extras), policy, options_for(row));
  c.randomize_vectors();
  data.feed(c, 0, kLength);
  c.executor->run(graph::Phase::forward, row.extent());
  carry(c);
  data.feed(c, kLength, kLength);
  row.segments.front().position = kLength;
  mantissa::testing::train_step(c, row.extent());
  const auto loss = [&] {
    c.executor->run(graph::Phase::forward, row.extent());
    const std::vector<double> values = c.values("log_prob", kLength);
    double sum = 0;
    for (std::size_t t = 0; t < values.size(); ++t)
      sum += data.targets[kLength + t] < 0 ? 0 : data.d[kLength + t] * values[t];
    return sum;
  };
  for (const char* name : {"model.layers.0.attn.x_k", "model.layers.0.attn.k_k", "model.layers.1.ffn.x_k",
                           "model.layers.1.attn.w_lora.lora.2.bias", "model.layers.0.attn_norm.weight"}) {
    const auto slot = std::ranges::find(c.program.slots, name, &plan::Slot::name);
    ASSERT_NE(slot, c.program.slots.end()) << name;
    const std::vector<double> gradient = c.values(slot->gradient, 2);
    for (std::size_t i = 0; i < 2; ++i) {
      constexpr double kStep = 1e-6;
      const double x = c.values(slot->master_buffer, 1, i).front();
      c.set(slot->master_buffer, i, x + kStep);
      const double above = loss();
      c.set(slot->master_buffer, i, x - kStep);
      const double below = loss();
      c.set(slot->master_buffer, i, x);
      EXPECT_NEAR((above - below) / (2 * kStep), gradient[i], 1e-7 * (1 + std::abs(gradient[i]))) << name;
    }
  }
}

TEST(CarriedStates, AreAnErrorOfModelsWithAttention) {
  model::Extras extras;
  extras.carried = 1;
  try {
    model::build_log_prob(mantissa::testing::tiny_llama(false), 8, 8, true, {}, extras);
    FAIL() << "built";
  } catch (const ConfigError& e) {
    EXPECT_NE(
        std::string(e.what()).find("data.carry_state: expected a model whose state has one size for any "
                                   "length, such as rwkv7"),
        std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace mantissa::carried_states_test
