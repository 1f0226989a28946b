// The fields of config.json for each family: the defaults of transformers, the forms of versions 4 and 5, and
// configs with the same meaning.
#include <gtest/gtest.h>

#include "engine/model/description.h"
#include "engine/model/tiny_families.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/engine/model/graphs.h"

namespace mantissa::model::family_config_test {
namespace {

using mantissa::testing::describe;
using mantissa::testing::tiny_families;
using mantissa::testing::TinyFamily;
using nlohmann::json;

/// Returns the model of a config as text.
std::string meaning(const json& config) {
  const ModelConfig c = parse_model_config(config, "config.json");
  constexpr std::int64_t kPositions = 12;  // beyond the original contexts
  return fmt::format("{} {} {} {}\n{}", c.model_type, c.max_position_embeddings, c.tie_word_embeddings,
                     c.positions_are_limited, describe(build_log_prob(c, kPositions, kPositions, false)));
}

/// The required fields of the family's config.
json smallest(const std::string& model_type) {
  json c = model_type == "gpt2" ? json{{"n_embd", 256}, {"n_layer", 3}, {"n_head", 32}}
                                : json{{"hidden_size", 256},
                                       {"intermediate_size", 24},
                                       {"num_hidden_layers", 3},
                                       {"num_attention_heads", 32}};
  c["model_type"] = model_type;
  c["vocab_size"] = 40;
  return c;
}

json with(json config, const json& more) {
  if (!more.is_null()) config.update(more);
  return config;
}

struct Defaults {
  const char* model_type;
  json fields;  // the default of transformers
};

std::vector<Defaults> defaults() {
  const json common = {{"tie_word_embeddings", false}, {"initializer_range", 0.02}};
  const json decoder = with(common, {{"rms_norm_eps", 1e-6}, {"rope_theta", 10000.0}});
  const json silu = with(decoder, {{"hidden_act", "silu"}, {"head_dim", 8}});
  const json qwen = with(silu, {{"max_position_embeddings", 32768},
                                {"num_key_value_heads", 32},
                                {"use_sliding_window", false},
                                {"max_window_layers", 28}});
  const json gemma = with(decoder, {{"hidden_activation", "gelu_pytorch_tanh"},
                                    {"num_key_value_heads", 4},
                                    {"head_dim", 256},
                                    {"tie_word_embeddings", true},
                                    {"attention_bias", false},
                                    {"query_pre_attn_scalar", 256},
                                    {"sliding_window", 4096}});
  return {{"llama", with(silu, {{"max_position_embeddings", 2048},
                                {"num_key_value_heads", 32},
                                {"attention_bias", false},
                                {"mlp_bias", false}})},
          {"mistral",
           with(silu,
                {{"max_position_embeddings", 131072}, {"num_key_value_heads", 8}, {"sliding_window", 4096}})},
          {"phi3", with(silu, {{"max_position_embeddings", 4096},
                               {"num_key_value_heads", 32},
                               {"rms_norm_eps", 1e-5},
                               {"sliding_window", nullptr}})},
          {"qwen2", qwen},
          {"qwen3", with(qwen, {{"head_dim", 128}, {"attention_bias", false}})},
          {"gemma2",
           with(gemma, {{"max_position_embeddings", 8192},
                        {"attn_logit_softcapping", 50.0},
                        {"final_logit_softcapping", 30.0},
                        {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}})},
          {"gemma3_text", with(gemma, {{"max_position_embeddings", 131072},
                                       {"attn_logit_softcapping", nullptr},
                                       {"final_logit_softcapping", nullptr},
                                       {"rope_theta", 1e6},
                                       {"rope_local_base_freq", 1e4},
                                       {"sliding_window_pattern", 6}})},
          {"gpt2", with(common, {{"tie_word_embeddings", true},
                                 {"n_inner", 1024},
                                 {"n_positions", 1024},
                                 {"layer_norm_epsilon", 1e-5},
                                 {"activation_function", "gelu_new"},
                                 {"scale_attn_weights", true},
                                 {"scale_attn_by_inverse_layer_idx", false}})}};
}

TEST(FamilyConfig, HasTheDefaultsOfTransformersWhereFieldsAreMissing) {
  const std::vector<Defaults> all = defaults();
  ASSERT_EQ(all.size(), all_families().size());
  for (const Defaults& d : all) {
    SCOPED_TRACE(d.model_type);
    EXPECT_TRUE(meaning(smallest(d.model_type)) == meaning(with(smallest(d.model_type), d.fields)));
  }
}

TEST(FamilyConfig, EveryFieldWithADefaultCounts) {
  // A change of any default gives another model, except for rotary angles of layers that do not exist.
  const std::map<std::string, json> changes = {
      {"tie_word_embeddings", nullptr},
      {"initializer_range", 0.03},
      {"rms_norm_eps", 1e-4},
      {"rope_theta", 500.0},
      {"head_dim", 6},
      {"max_position_embeddings", 1000},
      {"num_key_value_heads", 2},
      {"attention_bias", true},
      {"mlp_bias", true},
      {"sliding_window", 5},
      {"query_pre_attn_scalar", 100},
      {"attn_logit_softcapping", nullptr},
      {"final_logit_softcapping", 7.0},
      {"rope_local_base_freq", 77.0},
      {"sliding_window_pattern", 2},
      {"use_sliding_window", true},
      {"max_window_layers", 0},
      {"layer_types", json::array({"full_attention", "sliding_attention", "sliding_attention"})},
      {"activation_function", "gelu"},
      {"n_inner", 100},
      {"n_positions", 100},
      {"layer_norm_epsilon", 1e-3},
      {"scale_attn_weights", false},
      {"scale_attn_by_inverse_layer_idx", true}};
  for (const Defaults& d : defaults()) {
    json base = with(smallest(d.model_type), d.fields);
    const bool qwen = std::string(d.model_type).starts_with("qwen");
    if (qwen) base.update({{"use_sliding_window", true}, {"max_window_layers", 2}, {"sliding_window", 9}});
    for (const auto& [key, value] : d.fields.items()) {
      if (key.starts_with("hidden_act")) continue;  // the only supported value
      if (key == "attn_logit_softcapping" && value.is_null()) continue;
      SCOPED_TRACE(fmt::format("{} {}", d.model_type, key));
      json change = changes.at(key);
      if (key == "tie_word_embeddings") change = !value.get<bool>();
      if (qwen && key == "use_sliding_window") change = false;
      EXPECT_FALSE(meaning(with(base, {{key, change}})) == meaning(base));
    }
  }
}

struct Same {
  const char* model_type;
  json one, other;
};

TEST(FamilyConfig, ReadsTheFormsOfTransformers4And5Alike) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8}};
  const json linear = {{"rope_type", "linear"}, {"factor", 4.0}};
  const json full = "full_attention", windowed = "sliding_attention";
  std::vector<Same> all = {
      {"llama", {{"rope_theta", 500.0}}, {{"rope_parameters", {{"rope_theta", 500.0}}}}},
      {"llama", {{"rope_scaling", json::object()}}, {{"rope_parameters", {{"rope_type", "default"}}}}},
      {"llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}}, {{"rope_scaling", linear}}},
      // If both exist, rope_scaling takes precedence, and the base is the one next to it.
      {"llama",
       {{"rope_theta", 500.0},
        {"rope_scaling", linear},
        {"rope_parameters", {{"rope_theta", 77.0}, {"rope_type", "default"}}}},
       {{"rope_theta", 500.0}, {"rope_scaling", linear}}},
      // YaRN's factor is computed from the contexts.
      {"llama",
       {{"max_position_embeddings", 64},
        {"rope_scaling",
         {{"rope_type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 8}}}},
       {{"max_position_embeddings", 64},
        {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 8}}}}},
      {"gemma3_text",
       {{"rope_theta", 500.0}, {"rope_local_base_freq", 70.0}, {"rope_scaling", linear}},
       {{"rope_parameters",
         {{full, with(linear, {{"rope_theta", 500.0}})},
          {windowed, {{"rope_type", "default"}, {"rope_theta", 70.0}}}}}}},
      // Fields missing in rope_parameters are read from the level above.
      {"gemma3_text",
       {{"rope_theta", 500.0}, {"rope_local_base_freq", 70.0}, {"rope_parameters", {{full, linear}}}},
       {{"rope_theta", 500.0}, {"rope_local_base_freq", 70.0}, {"rope_scaling", linear}}},
      {"gemma3_text",
       {{"rope_parameters", {{windowed, {{"rope_theta", 70.0}}}, {full, nullptr}}}},
       {{"rope_local_base_freq", 70.0}}},
      {"gemma3_text", {{"sliding_window_pattern", 2}}, {{"layer_types", {windowed, full, windowed}}}},
      {"gemma2", {}, {{"layer_types", {windowed, full, windowed}}}},
      {"qwen2",
       {{"use_sliding_window", true}, {"sliding_window", 5}, {"max_window_layers", 1}},
       {{"use_sliding_window", true}, {"sliding_window", 5}, {"layer_types", {full, windowed, windowed}}}},
      {"qwen3",
       {{"use_sliding_window", true}, {"max_window_layers", 0}},
       {{"use_sliding_window", true},
        {"sliding_window", 4096},
        {"layer_types", {windowed, windowed, windowed}}}},
      {"qwen2", {{"use_sliding_window", false}, {"sliding_window", 5}, {"max_window_layers", 0}}, {}},
  };
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "gemma2"}) {
    all.push_back({family,
                   {{"rope_theta", 500.0}, {"rope_scaling", yarn}},
                   {{"rope_parameters", with(yarn, {{"rope_theta", 500.0}})}}});
  }
  for (const Same& s : all) {
    SCOPED_TRACE(fmt::format("{} {} {}", s.model_type, s.one.dump(), s.other.dump()));
    EXPECT_TRUE(meaning(with(smallest(s.model_type), s.one)) ==
                meaning(with(smallest(s.model_type), s.other)));
  }
}

TEST(FamilyConfig, NullIsNotAlwaysTheDefault) {
  for (const auto& [family, one, other] : std::vector<Same>{
           // null: as many heads as queries. Missing: the default of the family.
           {"llama", {{"num_key_value_heads", nullptr}}, {{"num_key_value_heads", 32}}},
           {"mistral", {{"num_key_value_heads", nullptr}}, {{"num_key_value_heads", 32}}},
           {"mistral", {}, {{"num_key_value_heads", 8}}},
           {"qwen2",
            {{"num_attention_heads", 64}},
            {{"num_attention_heads", 64}, {"num_key_value_heads", 32}}},
           {"qwen2",
            {{"num_attention_heads", 64}, {"num_key_value_heads", nullptr}},
            {{"num_attention_heads", 64}, {"num_key_value_heads", 64}}},
           // null: no window.
           {"qwen2",
            {{"use_sliding_window", true}, {"sliding_window", nullptr}, {"max_window_layers", 0}},
            {{"use_sliding_window", false}}},
           {"llama", {{"head_dim", nullptr}, {"rope_scaling", nullptr}, {"rope_parameters", nullptr}}, {}},
           {"gpt2", {{"n_inner", nullptr}}, {}}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", family, one.dump(), other.dump()));
    EXPECT_TRUE(meaning(with(smallest(family), one)) == meaning(with(smallest(family), other)));
  }
  EXPECT_FALSE(meaning(with(smallest("mistral"), {{"sliding_window", nullptr}})) ==
               meaning(smallest("mistral")));
  for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"})
    EXPECT_FALSE(meaning(with(smallest("gemma2"), {{cap, nullptr}})) == meaning(smallest("gemma2"))) << cap;
}

TEST(FamilyConfig, ComesBackWithTheSameMeaningAndItsUnknownFields) {
  std::vector<json> all;
  for (const TinyFamily& tiny : tiny_families()) all.push_back(tiny.config);
  for (const Defaults& d : defaults()) all.push_back(smallest(d.model_type));
  const json sharp = {{"rope_type", "yarn"}, {"factor", 4.5},
                      {"beta_fast", 16},     {"beta_slow", 2},
                      {"mscale", 0.7},       {"mscale_all_dim", 0.9},
                      {"rope_theta", 500.0}, {"attention_factor", 1.25},
                      {"truncate", false},   {"original_max_position_embeddings", 8}};
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "gemma2"})
    all.push_back(with(smallest(family), {{"rope_parameters", sharp}}));
  all.push_back(with(
      smallest("gemma3_text"),
      {{"rope_parameters", {{"full_attention", sharp}, {"sliding_attention", {{"rope_theta", 70.0}}}}}}));
  all.push_back(with(smallest("mistral"), {{"sliding_window", nullptr}, {"num_key_value_heads", nullptr}}));
  all.push_back(with(smallest("gemma2"), {{"attn_logit_softcapping", nullptr}}));
  for (json config : all) {
    config["some_future_field"] = {{"a", {1, 2, nullptr}}};
    config["dtype"] = "bfloat16";
    SCOPED_TRACE(config.dump());
    const json written = to_json(parse_model_config(config, "config.json"), "float32");
    EXPECT_TRUE(meaning(written) == meaning(config));
    EXPECT_EQ(written["some_future_field"], config["some_future_field"]);
    EXPECT_EQ(written["torch_dtype"], "float32");
    EXPECT_FALSE(written.contains("dtype"));
    EXPECT_FALSE(written.contains("rope_parameters"));
    EXPECT_EQ(to_json(parse_model_config(written, "config.json"), "float32"), written);
  }
}

TEST(FamilyConfig, NamesTheArchitectureThatTransformersLoads) {
  const std::map<std::string, std::string> want = {
      {"llama", "LlamaForCausalLM"}, {"mistral", "MistralForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"},
      {"qwen3", "Qwen3ForCausalLM"}, {"gemma2", "Gemma2ForCausalLM"},   {"gemma3_text", "Gemma3ForCausalLM"},
      {"gpt2", "GPT2LMHeadModel"},   {"phi3", "Phi3ForCausalLM"}};
  for (const Family* family : all_families()) {
    const ModelConfig c = parse_model_config(smallest(std::string(family->model_type)), "config.json");
    EXPECT_EQ(to_json(c, "float32")["architectures"], json::array({want.at(c.model_type)}));
  }
}

TEST(FamilyConfig, HasATinyModelOfEveryFamily) {
  for (const Family* family : all_families()) {
    EXPECT_TRUE(std::ranges::any_of(tiny_families(), [&](const TinyFamily& t) {
      return t.config["model_type"] == family->model_type;
    })) << family->model_type;
  }
}

TEST(FamilyConfig, ThePaddingIdIsReadAsTransformersReadsIt) {
  for (const Family* family : all_families()) {
    const std::string type(family->model_type);
    const json config = smallest(type);
    const std::string none = meaning(with(config, {{"pad_token_id", nullptr}}));
    const std::string first = meaning(with(config, {{"pad_token_id", 0}}));
    if (type == "gpt2") {
      EXPECT_EQ(first, none) << type;
      continue;
    }
    EXPECT_NE(first, none) << type;
    EXPECT_EQ(meaning(config), type.starts_with("gemma") ? first : none) << type;
    EXPECT_EQ(meaning(with(config, {{"pad_token_id", -1}})), meaning(with(config, {{"pad_token_id", 39}})))
        << type;
    EXPECT_THROW(meaning(with(config, {{"pad_token_id", 40}})), ConfigError) << type;
    EXPECT_THROW(meaning(with(config, {{"pad_token_id", "<pad>"}})), ConfigError) << type;
  }
}

}  // namespace
}  // namespace mantissa::model::family_config_test
