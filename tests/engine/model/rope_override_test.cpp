// The base of the rotary angles by length, in place of a model's own.
#include "mantissa/engine/model/rope_override.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"

namespace mantissa::model {
namespace {

using nlohmann::json;

ModelConfig llama_with(const json& more) {
  json fields = {{"model_type", "llama"},          {"hidden_size", 16},        {"intermediate_size", 32},
                 {"num_hidden_layers", 1},         {"num_attention_heads", 2}, {"vocab_size", 64},
                 {"max_position_embeddings", 4096}};
  fields.update(more);
  return parse_model_config(fields, "config.json");
}

std::string refusal_of(const ModelConfig& model, double theta) {
  try {
    with_rope(model, theta, 0, "run.stage 2");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(RopeOverride, LwmsTableHasABaseForEveryLengthUpToAMillionTokens) {
  // README.md of LargeWorldModel/LWM from 128K on; arXiv:2402.08268, table 1, for 32K; Llama 2 for 4K.
  const std::pair<std::int64_t, double> rows[] = {{4096, 1e4},   {32768, 1e6},    {131072, 1e7},
                                                  {262144, 1e7}, {524288, 2.5e7}, {1048576, 5e7}};
  std::int64_t before = 0;
  for (const auto& [length, theta] : rows) {
    EXPECT_EQ(lwm_theta(length), theta);
    EXPECT_EQ(lwm_theta(before + 1), theta);  // a length in between has the base of the next one
    before = length;
  }
  EXPECT_THROW(lwm_theta(1048577), ConfigError);
}

TEST(RopeOverride, ReplacesTheBaseAndRaisesThePositions) {
  const ModelConfig long_model = with_rope(llama_with(json::object()), 1e6, 32768, "test");
  EXPECT_EQ(rope_theta(long_model), 1e6);
  EXPECT_EQ(long_model.max_position_embeddings, 32768);
  const json written = to_json(long_model, "float32");
  EXPECT_EQ(written["rope_theta"], 1e6);
  EXPECT_EQ(written["max_position_embeddings"], 32768);
  EXPECT_EQ(with_rope(long_model, 0, 100, "test").max_position_embeddings, 32768);  // never lowers them
  EXPECT_EQ(rope_theta(with_rope(long_model, 0, 0, "test")), 1e6);
}

TEST(RopeOverride, ReplacesTheBaseInTheFormOfTransformers5) {
  const ModelConfig model =
      llama_with({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 50000.0}}}});
  EXPECT_EQ(rope_theta(model), 50000);
  EXPECT_EQ(rope_theta(with_rope(model, 1e7, 0, "test")), 1e7);
}

TEST(RopeOverride, IsRefusedForScaledAnglesAndForLearnedPositions) {
  const ModelConfig scaled = llama_with({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}});
  EXPECT_EQ(refusal_of(scaled, 1e6),
            "run.stage 2: the model scales its rotary angles (rope_scaling), which another base would change "
            "twice. Fix: remove the key, or rope_scaling");
  EXPECT_EQ(with_rope(scaled, 0, 100000, "test").max_position_embeddings, 4096);  // the scaling is for these
  const ModelConfig gpt2 = parse_model_config(
      {{"model_type", "gpt2"}, {"n_embd", 16}, {"n_layer", 1}, {"n_head", 2}, {"vocab_size", 64}},
      "config.json");
  EXPECT_EQ(rope_theta(gpt2), 0);
  EXPECT_EQ(refusal_of(gpt2, 1e6),
            "run.stage 2: a model of the type gpt2 has no rotary angles. Fix: remove the key");
}

}  // namespace
}  // namespace mantissa::model
