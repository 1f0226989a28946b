// Small models of every architecture of GGUF files.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/disk/temporary.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/files/convert/convert.h"
#include "mantissa/files/gguf/header_writer.h"
#include "mantissa/files/gguf/value.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/expert_tensors.h"
#include "mantissa/files/io/model_path.h"

namespace mantissa::convert {

struct SmallModel {
  const char* name;
  nlohmann::json config;
};

inline std::vector<SmallModel> small_models() {
  using nlohmann::json;
  const json decoder = {{"vocab_size", 64},
                        {"hidden_size", 32},
                        {"intermediate_size", 64},
                        {"num_hidden_layers", 2},
                        {"num_attention_heads", 4},
                        {"num_key_value_heads", 2},
                        {"head_dim", 8},
                        {"max_position_embeddings", 64},
                        {"rms_norm_eps", 1e-5},
                        {"tie_word_embeddings", false}};
  const auto with = [&](const char* type, const json& more) {
    json config = decoder;
    config.update(more);
    config["model_type"] = type;
    if (config["model_type"] == "stablelm") config.erase("rms_norm_eps");
    return config;
  };
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 32}};
  const json linear = {{"rope_type", "linear"}, {"factor", 4.0}};
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  const json stablelm = {{"use_qkv_bias", true},
                         {"use_parallel_residual", false},
                         {"partial_rotary_factor", 0.5},
                         {"layer_norm_eps", 1e-4}};
  const json parallel = {
      {"use_qkv_bias", false}, {"use_parallel_residual", true}, {"partial_rotary_factor", 0.75}};
  const json granite = {{"embedding_multiplier", 12.0},
                        {"attention_multiplier", 0.125},
                        {"residual_multiplier", 0.22},
                        {"logits_scaling", 6.0}};
  const json gemma = {{"query_pre_attn_scalar", 8}, {"sliding_window", 16}, {"tie_word_embeddings", true}};
  json gpt2 = {{"model_type", "gpt2"}, {"vocab_size", 64}, {"n_embd", 32},     {"n_layer", 2},
               {"n_head", 4},          {"n_inner", 48},    {"n_positions", 64}};
  const json rwkv7 = {{"model_type", "rwkv7"},   {"vocab_size", 64},     {"hidden_size", 64},
                      {"num_hidden_layers", 2},  {"head_dim", 64},       {"intermediate_size", 96},
                      {"decay_low_rank_dim", 8}, {"a_low_rank_dim", 16}, {"v_low_rank_dim", 24},
                      {"gate_low_rank_dim", 32}, {"norm_eps", 1e-5}};
  return {{"Llama", with("llama", {{"rope_scaling", llama3}})},
          {"LlamaBiases",
           with("llama", {{"attention_bias", true}, {"mlp_bias", true}, {"rope_scaling", linear}})},
          {"LlamaYarn", with("llama", {{"tie_word_embeddings", true}, {"rope_scaling", yarn}})},
          {"Qwen2", with("qwen2", json::object())},
          {"Qwen3", with("qwen3", {{"head_dim", 16}})},
          {"Mixtral", with("mixtral", {{"num_local_experts", 4}, {"num_experts_per_tok", 2}})},
          {"Qwen3Moe", with("qwen3_moe", {{"num_experts", 4},
                                          {"num_experts_per_tok", 2},
                                          {"moe_intermediate_size", 32},
                                          {"norm_topk_prob", true}})},
          {"Olmoe", with("olmoe", {{"num_experts", 4},
                                   {"num_experts_per_tok", 3},
                                   {"norm_topk_prob", false},
                                   {"pad_token_id", nullptr}})},
          {"Olmo2", with("olmo2", {{"pad_token_id", nullptr}, {"rope_scaling", yarn}})},
          {"SmolLm3",
           with("smollm3", {{"num_hidden_layers", 5}, {"tie_word_embeddings", true}, {"head_dim", 16}})},
          {"StableLm", with("stablelm", stablelm)},
          {"StableLmParallel", with("stablelm", parallel)},
          {"Granite", with("granite", granite)},
          {"Gemma2", with("gemma2", gemma)},
          {"Gemma3", with("gemma3_text", gemma)},
          {"Gpt2", gpt2},
          {"Rwkv7", rwkv7}};
}

class GgufModel : public test::TemporaryFolder {
 protected:
  std::filesystem::path in() const { return folder / "in"; }
  std::filesystem::path file() const { return folder / "model.gguf"; }
  std::filesystem::path back() const { return folder / "back"; }

  /// Writes a directory with random weights in `format`. The values are multiples of 1/64 below 2, which are
  /// exact in every format, also with 1 added.
  void write(const nlohmann::json& json, Scalar format = Scalar::f32,
             const std::vector<std::pair<std::string, std::string>>& beside = {}) const {
    const model::ModelConfig config = model::parse_model_config(json, "config.json");
    const graph::Graph graph = model::build_log_prob(config, 1, 1, false);
    std::mt19937_64 random(5);
    std::uniform_int_distribution<int> values(-127, 127);
    std::vector<std::vector<std::byte>> bytes;
    std::vector<io::TensorToWrite> tensors;
    for (const graph::ValueId p : graph.parameters()) {
      const auto n = static_cast<std::size_t>(graph.value(p).shape.count());
      std::vector<float> x(n);
      for (float& value : x) value = static_cast<float>(values(random)) / 64;
      bytes.emplace_back(n * bytes_of(format));
      store_row(x.data(), n, bytes.back().data(), format, 0);
      tensors.push_back({graph.value(p).name, io::dtype_of(format), graph.value(p).shape.sizes(), {}, {}});
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].bytes = bytes[i];
    io::ModelToWrite model;
    model.config_json = json.dump();
    tensors = io::with_split_experts(std::move(tensors));
    model.tensors = tensors;
    model.files = beside;
    io::write_model(in(), model);
  }

  Result convert_to_gguf(Change change = {}, std::optional<gguf::TensorType> quantized = {}) const {
    return *convert({io::open_model(in()), file(), change, true, Layout::gguf, quantized}, {});
  }
  Result convert_back(Change change = {}) const {
    return *convert({io::open_model(file()), back(), change, true}, {});
  }

  nlohmann::json json_of(const std::filesystem::path& path) const {
    return nlohmann::json::parse(test::contents_of(path));
  }
};

/// Copies a value to a header. Integers and lists have the widths of the files that are written here.
inline void add_value(gguf::HeaderWriter& to, const std::string& key, const gguf::Value& value) {
  const auto put = [&](const auto& v) {
    using V = std::decay_t<decltype(v)>;
    if constexpr (std::is_same_v<V, bool>) {
      to.add_flag(key, v);
    } else if constexpr (std::is_same_v<V, std::int64_t>) {
      to.add(key, static_cast<std::uint32_t>(v));
    } else if constexpr (std::is_same_v<V, double>) {
      to.add(key, static_cast<float>(v));
    } else if constexpr (std::is_same_v<V, std::string>) {
      to.add(key, std::string_view(v));
    } else if constexpr (std::is_same_v<V, gguf::Integers>) {
      to.add(key, std::vector<std::int32_t>(v.begin(), v.end()));
    } else if constexpr (std::is_same_v<V, gguf::Numbers>) {
      to.add(key, std::vector<float>(v.begin(), v.end()));
    } else {
      to.add(key, v);
    }
  };
  std::visit(put, value);
}

/// Returns the values of a tensor.
inline std::vector<float> values_of(const io::WeightFiles& files, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(files.find(name)->count()));
  files.read_f32(name, values);
  return values;
}

}  // namespace mantissa::convert
