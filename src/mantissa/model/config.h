// A Hugging Face config.json: read, checked, kept whole, written back.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mantissa::model {

/// What the graph of a Llama-type transformer needs to know. Sizes are checked and consistent.
struct ModelConfig {
  std::string model_type = "llama";
  std::int64_t vocab_size = 256;
  std::int64_t hidden_size = 256;
  std::int64_t intermediate_size = 688;
  std::int64_t num_hidden_layers = 4;
  std::int64_t num_attention_heads = 4;
  std::int64_t num_key_value_heads = 4;
  std::int64_t head_dim = 64;
  std::int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000.0;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;

  /// Everything that the file said, for writing back what is not understood here.
  nlohmann::json source = nlohmann::json::object();
  /// What a user should be told once: dropout read as 0, fields that were ignored.
  std::vector<std::string> notes;

  std::int64_t parameters() const;
};

/// Reads a config of transformers 4 (rope_theta, rope_scaling, torch_dtype) or 5 (rope_parameters, dtype).
/// `where` names the file in messages. Throws ConfigError for what is missing, of the wrong type,
/// inconsistent, or would change the result and is not supported.
ModelConfig parse_model_config(const nlohmann::json& json, const std::string& where);

/// The config.json of a model with these sizes and weights in `dtype` ("float32"), in the form that
/// transformers 4 and 5 both read.
nlohmann::json to_json(const ModelConfig& config, const std::string& dtype);

}  // namespace mantissa::model
