// A mixture of experts in place of a layer's MLP: its description, its fields, and the names of its weights
// in files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// Reads the number of experts of a layer, `count_key`, and num_experts_per_tok, with their defaults, for a
/// model whose `layers` layers all have experts. Throws ConfigError for fields that would change the result.
Experts read_experts(const FieldReader& fields, std::string_view count_key, std::int64_t count,
                     std::int64_t chosen, std::int64_t width, std::size_t layers);

/// Writes the number of experts.
void write_experts(const Experts& e, nlohmann::json& config);

/// Returns the fields that read_experts() reads.
std::vector<Field> expert_fields(std::string_view count_key);

// One parameter holds a weight of all experts of a layer, [experts, out, in]: "….experts.up_proj.weight". The
// files of transformers hold a tensor [out, in] for each expert: "….experts.0.up_proj.weight".

/// Returns true for a parameter that files hold in a tensor for each expert.
bool is_of_experts(std::string_view parameter);
/// Returns the name of an expert's tensor.
std::string expert_tensor(std::string_view parameter, std::int64_t expert);

struct ExpertTensor {
  std::string parameter;
  std::int64_t expert = 0;
};
/// Returns the parameter that a tensor is a part of; null: it is no expert's.
std::optional<ExpertTensor> parse_expert_tensor(std::string_view tensor);

}  // namespace mantissa::model
