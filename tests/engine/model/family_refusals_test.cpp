// Unsupported features of a family are errors that name the file and the field.
#include <gtest/gtest.h>

#include "engine/model/tiny_families.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/family.h"

namespace mantissa::model::family_refusals_test {
namespace {

using mantissa::testing::tiny_families;
using mantissa::testing::TinyFamily;
using nlohmann::json;

/// The tiny model of this name with other fields.
json tiny(const std::string& name, const json& fields) {
  for (const TinyFamily& t : tiny_families()) {
    if (t.name != name) continue;
    json config = t.config;
    config.update(fields);
    return config;
  }
  throw std::logic_error(name);
}

/// Returns the error of reading this config, or "".
std::string error_of(const json& config) {
  try {
    parse_model_config(config, "some/config.json");
    return {};
  } catch (const ConfigError& e) {
    return e.what();
  }
}

struct Refusal {
  const char* name;  // of the tiny model
  json fields;
  const char* where;  // "KEY" in the message
  const char* says;
};

TEST(FamilyRefusals, NameTheFileAndTheField) {
  const json longrope = {{"rope_type", "longrope"}, {"factor", 2.0}};
  const json full = "full_attention", windowed = "sliding_attention";
  const Refusal refusals[] = {
      {"llama",
       {{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 4.0}}}},
       "low_freq_factor",
       "is missing"},
      {"llama",
       {{"original_max_position_embeddings", 16}},
       "original_max_position_embeddings",
       "differs from the 8 of rope_scaling"},
      {"llama",
       {{"rope_scaling", nullptr}, {"rope_parameters", {{"full_attention", json::object()}}}},
       "full_attention",
       "move its fields one level up"},
      {"llama",
       {{"rope_scaling", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}},
       "partial_rotary_factor",
       "every head is rotated completely"},
      {"mistral", {{"attention_bias", true}}, "attention_bias", "no biases"},
      {"mistral", {{"sliding_window", 0}}, "sliding_window", "must be between 1 and"},
      {"mistral", {{"sliding_window", "all"}}, "sliding_window", "must be a whole number"},
      {"phi3", {{"attention_bias", true}}, "attention_bias", "no biases"},
      {"phi3", {{"sliding_window", 0}}, "sliding_window", "must be between 1 and"},
      {"phi3",
       {{"rope_scaling", longrope}},
       "rope_type",
       "is \"longrope\", which is not supported for Phi-3"},
      {"phi3", {{"rope_scaling", {{"type", "su"}}}}, "rope_type", "is \"su\", which"},
      {"phi3",
       {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 2.0}}}},
       "rope_type",
       "is \"yarn\", which"},
      {"qwen2", {{"num_key_value_heads", 3}}, "num_key_value_heads", "is 3, which does not divide"},
      {"qwen2",
       {{"sliding_window", nullptr}, {"layer_types", {windowed, full}}},
       "layer_types",
       "there is no window"},
      {"qwen2",
       {{"layer_types", {full, "chunked_attention"}}},
       "layer_types",
       "contains \"chunked_attention\"; supported"},
      {"qwen2", {{"layer_types", {full}}}, "layer_types", "one entry for each of the 2 layers"},
      {"qwen3", {{"use_sliding_window", false}}, "layer_types", "set use_sliding_window to true"},
      {"qwen2", {{"max_window_layers", -1}}, "max_window_layers", "must be between 0 and"},
      {"qwen3", {{"head_dim", 7}}, "head_dim", "even head size"},
      {"gemma2", {{"use_bidirectional_attention", true}}, "use_bidirectional_attention", "earlier ones"},
      {"gemma2", {{"hidden_activation", "gelu"}}, "hidden_activation", "supported: \"gelu_pytorch_tanh\""},
      {"gemma2", {{"attn_logit_softcapping", 0}}, "attn_logit_softcapping", "must be positive"},
      {"gemma2", {{"final_logit_softcapping", -1.0}}, "final_logit_softcapping", "must be positive"},
      {"gemma2", {{"query_pre_attn_scalar", 0}}, "query_pre_attn_scalar", "must be positive"},
      {"gemma2", {{"sliding_window", nullptr}}, "sliding_window", "is null, but layers"},
      {"gemma3", {{"attn_logit_softcapping", 50.0}}, "attn_logit_softcapping", "does not apply it"},
      {"gemma3", {{"use_bidirectional_attention", true}}, "use_bidirectional_attention", "earlier ones"},
      {"gemma3", {{"rope_parameters", {{"rope_theta", 1e4}}}}, "rope_parameters", "must contain"},
      {"gemma3", {{"rope_parameters", {{"full_attention", 3}}}}, "full_attention", "must be an object"},
      {"gemma3",
       {{"rope_parameters", {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2}}}}}},
       "rope_parameters",
       "scales the angles of sliding_attention layers"},
      {"gemma3",
       {{"sliding_window_pattern", 0}, {"layer_types", nullptr}},
       "sliding_window_pattern",
       "must be between 1 and"},
      {"gpt2",
       {{"activation_function", "relu"}},
       "activation_function",
       "supported: gelu_new, gelu, quick_gelu"},
      {"gpt2", {{"activation_function", ""}}, "activation_function", "is \"\", which is not supported"},
      {"gpt2", {{"add_cross_attention", true}}, "add_cross_attention", "only as a decoder"},
      {"gpt2", {{"n_head", 3}}, "n_head", "must divide n_embd 16"},
      {"gpt2", {{"n_embd", 1024}, {"n_head", 1}}, "n_head", "heads of at most 256"},
      {"gpt2", {{"hidden_size", 32}}, "hidden_size", "gpt2 uses the name n_embd"},
      {"gpt2", {{"n_positions", 0}}, "n_positions", "must be between 1 and"},
      {"gpt2",
       {{"n_embd", 1 << 30}, {"n_head", 1 << 29}, {"vocab_size", 1 << 30}},
       "n_embd",
       "more than 1e+13"},
      {"gpt2", {{"n_layer", 1 << 20}}, "n_layer", "must be between 1 and 1000"},
  };
  std::vector<Refusal> all(std::begin(refusals), std::end(refusals));
  for (const char* name : {"llama", "mistral", "phi3", "qwen2", "qwen3"}) {
    all.push_back({name, {{"hidden_act", "gelu"}}, "hidden_act", "supported: \"silu\""});
  }
  for (const char* name : {"llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"}) {
    all.push_back({name, {{"rope_scaling", longrope}}, "rope_type", "supported: default, linear"});
  }
  for (const char* name : {"llama", "mistral", "phi3", "qwen2", "qwen3", "gemma2", "gemma3"}) {
    all.push_back({name, {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor", "is not 1"});
    all.push_back({name, {{"hidden_size", nullptr}}, "hidden_size", "is missing; a"});
  }
  const std::vector<TinyFamily> families = tiny_families();
  for (const TinyFamily& t : families) {
    const char* name = t.name.c_str();
    all.push_back({name, {{"quantization_config", {{"bits", 4}}}}, "quantization_config", "quantised"});
    all.push_back({name, {{"vocab_size", 0}}, "vocab_size", "must be between 1 and"});
    all.push_back({name, {{"tie_word_embeddings", "yes"}}, "tie_word_embeddings", "true or false"});
    all.push_back({name, {{"eos_token_id", "end"}}, "eos_token_id", "an id or a list of ids"});
  }
  for (const Refusal& r : all) {
    const std::string message = error_of(tiny(r.name, r.fields));
    SCOPED_TRACE(r.fields.dump() + " in " + r.name + ": " + message);
    EXPECT_EQ(message.find("some/config.json"), 0U);
    EXPECT_NE(message.find('"' + std::string(r.where) + '"'), std::string::npos);
    EXPECT_NE(message.find(r.says), std::string::npos);
  }
}

TEST(FamilyRefusals, MarkADefaultNumberOfHeads) {
  for (const char* family : {"mistral", "qwen2", "qwen3", "gemma2", "gemma3_text"}) {
    json config = tiny("llama", {{"model_type", family}, {"num_attention_heads", 6}, {"head_dim", 8}});
    config.erase("num_key_value_heads");
    EXPECT_NE(error_of(config).find("by default, which does not divide num_attention_heads 6"),
              std::string::npos)
        << error_of(config);
  }
}

TEST(FamilyRefusals, OfMultimodalModelsSayHowToGetTheirText) {
  const json config = {{"model_type", "gemma3"}, {"text_config", tiny("gemma3", json::object())}};
  const std::string message = error_of(config);
  EXPECT_NE(message.find("\"model_type\" is \"gemma3\", a multimodal model"), std::string::npos) << message;
  EXPECT_NE(message.find("language_model.save_pretrained(DIR)"), std::string::npos) << message;
}

TEST(FamilyRefusals, OfAnUnknownFamilyListAllThatThereAre) {
  const std::string message = error_of({{"model_type", "bert"}});
  for (const Family* family : all_families())
    EXPECT_NE(message.find(family->model_type), std::string::npos) << message;
}

}  // namespace
}  // namespace mantissa::model::family_refusals_test
