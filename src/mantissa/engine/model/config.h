// A Hugging Face config.json: read, checked, stored completely, written back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/quants.h"

namespace mantissa::model {

struct Adapter;
struct Family;
class Network;

/// A model as described by its config.json: common fields of all families, and the network of its family.
/// Sizes are checked and consistent.
struct ModelConfig {
  std::string model_type = "llama";
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t max_position_embeddings = 0;  // the context of pre-training; 0: any number of positions
  bool positions_are_limited = false;        // learned positions limit the length of sequences
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  /// A reward model: its head gives a score (engine/model/graphs.h, kScoreHead) in place of logits.
  bool scores = false;
  /// The weight of the load-balancing loss that config.json asks for (output_router_logits,
  /// router_aux_loss_coef); 0: none. Null: the model has no experts.
  std::optional<double> router_aux_loss_coef;

  const Family* family = nullptr;
  std::shared_ptr<const Network> network;
  /// Decorates linear layers of the network. Null: none. The graphs then train its parameters alone.
  std::shared_ptr<const Adapter> adapter;
  /// The format of the blocks that hold the weights of linear layers, if these are not trained. Null: those
  /// of the policy.
  std::optional<QuantFormat> base;
  /// The plain format that holds all weights that an adapter leaves frozen. Null: those of the policy.
  std::optional<Scalar> base_plain;

  /// The complete file. Fields that are unknown here are written back from it.
  nlohmann::json source = nlohmann::json::object();
  /// Notes for the user: dropout read as 0, ignored fields.
  std::vector<std::string> notes;

  /// Returns max_position_embeddings, or a usual length for a model with any number of positions.
  std::int64_t usual_positions() const {
    return max_position_embeddings > 0 ? max_position_embeddings : 2048;
  }
  /// Returns the number of weights, counting a tied one once, without those of the adapter.
  std::int64_t parameters() const;
};

/// Returns a function of parameter names: the format of the blocks that hold a weight of linear_layers(), or
/// null for the other parameters, which have the policy's formats.
std::function<std::optional<QuantFormat>(std::string_view)> held_in_blocks(const ModelConfig& config);

/// Returns the reward model with the trunk of a language model, or of a reward model.
ModelConfig reward_model(ModelConfig config);

/// Reads a config of transformers 4 (rope_theta, rope_scaling, torch_dtype) or 5 (rope_parameters, dtype).
/// `where` is the file's name in messages. Throws ConfigError for a field that is missing, of the wrong type,
/// inconsistent, or unsupported although it would change the result.
ModelConfig parse_model_config(const nlohmann::json& json, const std::string& where);

/// Returns the config.json of this model with weights in `dtype` ("float32"), in a form that transformers 4
/// and 5 both read. A reward model is one of the family's classifiers with one label.
nlohmann::json to_json(const ModelConfig& config, const std::string& dtype);

}  // namespace mantissa::model
