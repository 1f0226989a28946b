// A mixture of experts in place of a layer's MLP: its description and its fields.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/engine/model/fields.h"

namespace mantissa::model {

/// Each token passes through the `chosen` experts with the largest logits of a router.
struct Experts {
  std::int64_t count = 0, chosen = 0;
  std::string_view count_key;      // of config.json
  std::int64_t width = 0;          // hidden size of an expert's MLP
  bool normalized = false;         // the weights of a token's experts sum to 1
  std::vector<bool> layers;        // whether a layer has experts
  std::string_view scope = "mlp";  // of the block within its layer
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
};

/// The defaults of transformers for fields missing from config.json.
struct ExpertDefaults {
  std::string_view count_key;  // num_experts or num_local_experts
  std::int64_t count = 0, chosen = 0;
  double aux_loss_coef = 0.001;
};

/// Reads the number of experts of a layer and num_experts_per_tok, for a model whose layers all have experts
/// of hidden size `width`, and into `config` the weight of the load-balancing loss. Throws ConfigError for
/// fields that would change the result.
Experts read_experts(const FieldReader& fields, ModelConfig& config, const ExpertDefaults& defaults,
                     std::int64_t width);

/// Writes the number of experts.
void write_experts(const Experts& e, nlohmann::json& config);

/// Returns the fields that read_experts() reads.
std::vector<Field> expert_fields(std::string_view count_key);

}  // namespace mantissa::model
