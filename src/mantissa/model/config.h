// A Hugging Face config.json: read, checked, kept whole, written back.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mantissa::model {

struct Family;
class Network;

/// A model as its config.json describes it: what all families have, and the network of its own family.
/// Sizes are checked and consistent.
struct ModelConfig {
  std::string model_type = "llama";
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t max_position_embeddings = 0;  // the context of pre-training
  bool positions_are_limited = false;        // learned positions: no sequence may be longer than that
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;

  const Family* family = nullptr;
  std::shared_ptr<const Network> network;

  /// The whole file, from which fields that are not understood here are written back.
  nlohmann::json source = nlohmann::json::object();
  /// Notes for the user: dropout read as 0, fields that were ignored.
  std::vector<std::string> notes;

  /// Number of weights, a tied one counted once.
  std::int64_t parameters() const;
};

/// Reads a config of transformers 4 (rope_theta, rope_scaling, torch_dtype) or 5 (rope_parameters, dtype).
/// `where` names the file in messages. Throws ConfigError for a field that is missing, of the wrong type,
/// inconsistent, or not supported though it would change the result.
ModelConfig parse_model_config(const nlohmann::json& json, const std::string& where);

/// The config.json of this model with weights in `dtype` ("float32"), in the form that transformers 4 and 5
/// both read.
nlohmann::json to_json(const ModelConfig& config, const std::string& dtype);

}  // namespace mantissa::model
