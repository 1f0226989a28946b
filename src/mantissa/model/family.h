// A family of models: everything that differs from others, stated once. One file of families/ each.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/model/config.h"
#include "mantissa/model/fields.h"
#include "mantissa/model/network.h"

namespace mantissa::model {

struct Family {
  std::string_view model_type;    // config.json's "model_type"
  std::string_view architecture;  // config.json's "architectures": "LlamaForCausalLM"
  /// Fields that are read, beside those of every family (common_fields()).
  std::vector<Field> fields;
  /// What names of tensors begin with in files of the whole model, and not in files of the bare trunk.
  std::string_view trunk_prefix;
  /// Ends of the names of tensors that files hold and that follow from the config: masks, frequencies.
  std::vector<std::string_view> derived;
  /// The weight of the head, which files may hold beside the embedding it is tied to.
  std::string_view head_weight = "lm_head.weight";
  /// Reads and checks the family's fields, refuses those that would change the result, fills the common
  /// part of `config`, and returns the network.
  std::shared_ptr<const Network> (*read)(const FieldReader& fields, ModelConfig& config) = nullptr;
};

/// Every family there is.
std::span<const Family* const> all_families();
/// The family of this model_type; null where there is none.
const Family* find_family(std::string_view model_type);

/// Fields that every family has.
std::span<const Field> common_fields();

}  // namespace mantissa::model
