// SmolLM3 (Hugging Face, 2025): Llama whose q and k are not rotated in every fourth layer.
#include <fmt/format.h>

#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

/// Sets for each layer whether it rotates q and k: by no_rope_layers, in which 1 is a layer that does, or by
/// no_rope_layer_interval.
void read_rotated_layers(const FieldReader& fields, DecoderSpec& s) {
  constexpr const char* kKey = "no_rope_layers";
  const std::int64_t interval = fields.size("no_rope_layer_interval", 4);
  const nlohmann::json* list = fields.find(kKey);
  if (list == nullptr) {
    for (std::size_t i = 0; i < s.layers.size(); ++i)
      s.layers[i].rotates = (static_cast<std::int64_t>(i) + 1) % interval != 0;
    return;
  }
  if (!list->is_array() || list->size() != s.layers.size())
    fields.fail(kKey,
                fmt::format("must be a list with one entry for each of the {} layers", s.layers.size()));
  for (std::size_t i = 0; i < s.layers.size(); ++i) {
    const nlohmann::json& entry = (*list)[i];
    s.layers[i].rotates = entry == 1 || entry == true;
    if (s.layers[i].rotates || entry == 0 || entry == false) continue;
    fields.fail(
        kKey, fmt::format("contains {}; supported: 1 for a layer that rotates q and k, and 0", shown(entry)));
  }
}

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(
      fields, c, {.max_positions = 32768, .kv_heads = 4, .tied_head = true, .padding_id = 128004});
  s.qkv_bias = s.output_bias = fields.flag("attention_bias", false);
  s.mlp_bias = fields.flag("mlp_bias", false);
  s.ropes = {read_rope(fields, 2e6, c.max_position_embeddings)};
  read_swiglu(fields, c, s);
  read_rotated_layers(fields, s);
  read_switched_windows(fields, s, std::nullopt, [&](std::int64_t layer) {
    return !s.layers[static_cast<std::size_t>(layer)].rotates;
  });
  return std::make_shared<DecoderNetwork>(std::move(s));
}

}  // namespace

const Family kSmolLm3 = {
    .model_type = "smollm3",
    .title = "SmolLM3",
    .summary = "Llama without rotary positions in every fourth layer",
    .architecture = "SmolLM3ForCausalLM",
    .classifier = "SmolLM3ForSequenceClassification",
    .fields = swiglu_fields(
        {{"attention_bias", Field::Kind::flag, "q, k, v and o have biases"},
         {"mlp_bias", Field::Kind::flag, "the MLP has biases"},
         {"no_rope_layers", Field::Kind::any, "1 for each layer that rotates q and k, and 0 for the others"},
         {"no_rope_layer_interval", Field::Kind::whole,
          "without no_rope_layers, q and k are not rotated in every layer of this number"},
         {"use_sliding_window", Field::Kind::flag, "layers without rotation have the window"},
         {"sliding_window", Field::Kind::any, "keys visible to a query, including its own"},
         {"layer_types", Field::Kind::any, "kind of attention for each layer"}}),
    .read = read,
};

}  // namespace mantissa::model
