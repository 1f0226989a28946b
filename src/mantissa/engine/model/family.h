// A family of models: everything that differs from other families, defined in one file of families/.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/engine/model/fields.h"
#include "mantissa/engine/model/network.h"

namespace mantissa::model {

struct Family {
  std::string_view model_type;    // config.json's "model_type"
  std::string_view title;         // in the README: "Llama"
  std::string_view summary;       // in docs/models.md: what distinguishes it
  std::string_view architecture;  // config.json's "architectures": "LlamaForCausalLM"
  std::string_view classifier;    // the same of a reward model: "LlamaForSequenceClassification"
  /// The fields that are read, in addition to those of every family (common_fields()).
  std::vector<Field> fields;
  /// The prefix of tensor names in files of the whole model, absent in files of the bare trunk.
  std::string_view trunk_prefix = "model.";
  /// Suffixes of tensor names in files that follow from the config: masks, frequencies.
  std::vector<std::string_view> derived = {"rotary_emb.inv_freq"};
  /// The weight of the head, which files may contain in addition to the embedding it is tied to.
  std::string_view head_weight = "lm_head.weight";
  /// The built-in chat template (text/chat/templates.h) of models that come without one; empty: none.
  std::string_view chat_template = {};
  /// Reads and checks the family's fields, throws for unsupported values that would change the result, fills
  /// the common part of `config`, and returns the network.
  std::shared_ptr<const Network> (*read)(const FieldReader& fields, ModelConfig& config) = nullptr;
};

/// Returns all families.
std::span<const Family* const> all_families();
/// Returns the family of this model_type, or null.
const Family* find_family(std::string_view model_type);

/// Returns the fields that every family has.
std::span<const Field> common_fields();

}  // namespace mantissa::model
