// Qwen2 (Yang et al., 2024): Llama with biases of q, k and v, and windows in its upper layers.
#include "mantissa/model/decoder.h"
#include "mantissa/model/families/families.h"
#include "mantissa/model/families/qwen.h"
#include "mantissa/model/rope_fields.h"

namespace mantissa::model {

void read_qwen_windows(const FieldReader& fields, DecoderSpec& s) {
  const auto upper = [](const FieldReader& f, std::int64_t layer) {
    return f.flag("use_sliding_window", false) && layer >= f.size("max_window_layers", 28);
  };
  const std::vector<bool> windowed =
      read_layer_types(fields, static_cast<std::int64_t>(s.layers.size()), upper);
  if (!fields.flag("use_sliding_window", false)) return;  // transformers drops the window then
  if (!fields.has("sliding_window"))
    fields.fail("sliding_window", "is missing, but use_sliding_window is true; set the window's size");
  set_windows(s, fields.size("sliding_window"), windowed);
}

std::vector<Field> qwen_fields(std::vector<Field> more) {
  using Kind = Field::Kind;
  std::vector<Field> fields = {
      {"hidden_act", Kind::text, "activation of the MLP"},
      {"sliding_window", Kind::any, "keys that a query sees, itself included"},
      {"use_sliding_window", Kind::flag, "layers from max_window_layers on have the window"},
      {"max_window_layers", Kind::whole, "lower layers that see the whole prefix"},
      {"layer_types", Kind::any, "kind of attention, layer by layer"}};
  fields.insert(fields.end(), more.begin(), more.end());
  return decoder_fields(std::move(fields));
}

namespace {

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(fields, c, {.max_positions = 32768});
  s.qkv_bias = true;
  s.ropes = {read_rope(fields, 10000, c.max_position_embeddings)};
  require_activation(fields, "hidden_act", "silu", "swish");
  read_qwen_windows(fields, s);
  return std::make_shared<Decoder>(std::move(s));
}

}  // namespace

const Family kQwen2 = {
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .fields = qwen_fields({}),
    .trunk_prefix = "model.",
    .derived = {"rotary_emb.inv_freq"},
    .read = read,
};

}  // namespace mantissa::model
