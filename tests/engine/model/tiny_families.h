// Tiny models of every family that together use every feature of the families.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mantissa::testing {

struct TinyFamily {
  std::string name;
  nlohmann::json config;
};

inline constexpr std::int64_t kTinyVocabulary = 29;

/// Windows and original contexts are shorter than ten tokens; every model accepts at least 64 positions.
inline std::vector<TinyFamily> tiny_families() {
  using nlohmann::json;
  const json decoder = {{"vocab_size", kTinyVocabulary}, {"hidden_size", 16},
                        {"intermediate_size", 20},       {"num_hidden_layers", 2},
                        {"num_attention_heads", 4},      {"num_key_value_heads", 2},
                        {"initializer_range", 0.3},      {"rms_norm_eps", 1e-5}};
  const json gpt2 = {
      {"vocab_size", kTinyVocabulary}, {"n_embd", 16}, {"n_layer", 2}, {"n_head", 4}, {"n_positions", 64},
      {"initializer_range", 0.3}};
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 4.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8}};
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8}};
  const json linear = {{"rope_type", "linear"}, {"factor", 3.0}};
  const json types = {"sliding_attention", "full_attention"};
  std::vector<TinyFamily> all;
  const auto add = [&](const char* name, const char* model_type, const json& base, const json& more) {
    json config = base;
    config.update(more);
    config["model_type"] = model_type;
    all.push_back({name, config});
  };
  add("llama", "llama", decoder,
      {{"attention_bias", true},
       {"mlp_bias", true},
       {"tie_word_embeddings", true},
       {"head_dim", 6},
       {"rope_scaling", llama3}});
  add("llama_dynamic", "llama", decoder,
      {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}, {"max_position_embeddings", 8}});
  add("mistral", "mistral", decoder,
      {{"sliding_window", 3}, {"num_key_value_heads", 1}, {"rope_scaling", yarn}});
  add("phi3", "phi3", decoder, {{"sliding_window", 4}, {"tie_word_embeddings", true}});
  add("qwen2", "qwen2", decoder,
      {{"use_sliding_window", true},
       {"sliding_window", 4},
       {"max_window_layers", 1},
       {"rope_scaling", linear}});
  add("qwen3", "qwen3", decoder,
      {{"head_dim", 10},
       {"attention_bias", true},
       {"tie_word_embeddings", true},
       {"use_sliding_window", true},
       {"sliding_window", 5},
       {"layer_types", types}});
  add("gemma2", "gemma2", decoder,
      {{"head_dim", 8},
       {"sliding_window", 4},
       {"query_pre_attn_scalar", 11},
       {"attn_logit_softcapping", 0.8},
       {"final_logit_softcapping", 2.5}});
  add("gemma3", "gemma3_text", decoder,
      {{"head_dim", 8},
       {"sliding_window", 3},
       {"query_pre_attn_scalar", 7},
       {"attention_bias", true},
       {"tie_word_embeddings", false},
       {"layer_types", types},
       {"rope_theta", 500.0},
       {"rope_local_base_freq", 100.0},
       {"rope_scaling", linear}});
  add("gpt2", "gpt2", gpt2, json::object());
  add("gpt2_untied", "gpt2", gpt2,
      {{"n_inner", 22},
       {"tie_word_embeddings", false},
       {"scale_attn_by_inverse_layer_idx", true},
       {"activation_function", "gelu"}});
  add("gpt2_quick_gelu", "gpt2", gpt2, {{"activation_function", "quick_gelu"}});
  return all;
}

}  // namespace mantissa::testing
