// Qwen2 (Yang et al., 2024): Llama with biases of q, k and v, and windows in its upper layers.
#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/families/qwen.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
void read_qwen_windows(const FieldReader& fields, DecoderSpec& s) {
  read_switched_windows(fields, s, 4096, [&](std::int64_t layer) {
    return layer >= fields.size("max_window_layers", 28, kLargestSize, 0);
  });
}

std::vector<Field> qwen_fields(std::vector<Field> more) {
  using Kind = Field::Kind;
  std::vector<Field> fields = {
      {"sliding_window", Kind::any, "keys visible to a query, including its own"},
      {"use_sliding_window", Kind::flag, "layers from max_window_layers on have the window"},
      {"max_window_layers", Kind::whole, "number of lower layers that attend to the whole prefix"},
      {"layer_types", Kind::any, "kind of attention for each layer"}};
  fields.insert(fields.end(), more.begin(), more.end());
  return swiglu_fields(std::move(fields));
}

namespace {

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(fields, c, {.max_positions = 32768, .kv_heads = 32});
  s.qkv_bias = true;
  s.ropes = {read_rope(fields, 10000, c.max_position_embeddings)};
  read_swiglu(fields, c, s);
  read_qwen_windows(fields, s);
  return std::make_shared<DecoderNetwork>(std::move(s));
}

}  // namespace

const Family kQwen2 = {
    .model_type = "qwen2",
    .title = "Qwen2",
    .summary = "Llama with biases of q, k and v, and windows in its upper layers",
    .architecture = "Qwen2ForCausalLM",
    .classifier = "Qwen2ForSequenceClassification",
    .fields = qwen_fields({}),
    .read = read,
};

}  // namespace mantissa::model
