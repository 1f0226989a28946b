// The form of a row of family_facts.h.
#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace mantissa::testing {

// Values and fields of config.json are written as text, as in a file.

/// A field that config.json may omit.
struct DefaultField {
  const char* key;
  const char* value;            // that transformers uses if it is missing from smallest_config()
  const char* other = nullptr;  // a value that gives another model; null: there is none
};

/// A tiny model: fields in addition to those of FamilyFacts::tiny_shape.
struct TinyModel {
  const char* name;
  const char* fields = "{}";
};

/// Two forms of fields that mean the same.
struct SameFields {
  const char* one;
  const char* other;
};

/// Fields that are an error in the first tiny model of the family.
struct Refusal {
  const char* fields;
  const char* key;   // that the message names
  const char* says;  // a part of the message
};

/// The rotary angles of a family.
enum class Angles {
  none,           // learned positions
  unscaled,       // no rope_scaling
  one_table,      // rope_scaling applies to all layers
  table_per_kind  // rope_parameters has an object for each kind of layer
};

struct FamilyFacts {
  const char* model_type;
  const char* architecture;  // the class of transformers
  const char* required;      // the fields of a small model that config.json must have
  std::vector<DefaultField> defaults;
  const char* counting = "{}";  // fields of a model in which each field of `defaults` counts
  Angles angles = Angles::one_table;
  bool fixed_kv_heads = false;                     // the default of num_key_value_heads is a number
  bool partial_rotary = false;                     // reads partial_rotary_factor
  const char* layer = "model.layers.1.self_attn";  // where files have tensors that follow from the config
  const char* tiny_shape;
  /// Together they use every feature of the family, with windows and original contexts shorter than ten
  /// tokens and at least 64 positions.
  std::vector<TinyModel> tiny;
  std::vector<SameFields> same = {};
  std::vector<Refusal> refusals = {};
};

/// Returns the defaults in `own`, and of those in `common` the others.
inline std::vector<DefaultField> with_defaults(std::vector<DefaultField> own,
                                               const std::vector<DefaultField>& common) {
  for (const DefaultField& field : common) {
    const auto same = [&](const DefaultField& o) { return std::string_view(o.key) == field.key; };
    if (std::ranges::none_of(own, same)) own.push_back(field);
  }
  return own;
}

inline std::vector<DefaultField> decoder_defaults(std::vector<DefaultField> own) {
  return with_defaults(std::move(own), {{"tie_word_embeddings", "false", "true"},
                                        {"initializer_range", "0.02", "0.03"},
                                        {"rms_norm_eps", "1e-6", "1e-4"},
                                        {"rope_theta", "10000.0", "500.0"},
                                        {"hidden_act", R"("silu")"},
                                        {"swiglu_limit", "null", "0.5"},
                                        {"pad_token_id", "null", "0"},
                                        {"head_dim", "8", "6"}});
}

/// Of a family with LayerNorms.
inline std::vector<DefaultField> layer_norm_defaults(std::vector<DefaultField> own) {
  std::vector<DefaultField> all = decoder_defaults(std::move(own));
  std::erase_if(all, [](const DefaultField& field) { return std::string_view(field.key) == "rms_norm_eps"; });
  return all;
}

inline std::vector<DefaultField> gemma_defaults(std::vector<DefaultField> own) {
  return with_defaults(std::move(own), {{"tie_word_embeddings", "true", "false"},
                                        {"initializer_range", "0.02", "0.03"},
                                        {"rms_norm_eps", "1e-6", "1e-4"},
                                        {"rope_theta", "10000.0", "500.0"},
                                        {"hidden_activation", R"("gelu_pytorch_tanh")"},
                                        {"pad_token_id", "0", "null"},
                                        {"num_key_value_heads", "4", "2"},
                                        {"head_dim", "256", "6"},
                                        {"attention_bias", "false", "true"},
                                        {"query_pre_attn_scalar", "256", "100"},
                                        {"sliding_window", "4096", "5"}});
}

}  // namespace mantissa::testing
