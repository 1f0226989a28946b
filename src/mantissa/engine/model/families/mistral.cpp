// Mistral (Jiang et al., 2023): Llama without biases, with a sliding window of keys.
#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

constexpr std::int64_t kDefaultWindow = 4096;  // for a config.json without the field; null: no window

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(fields, c, {.max_positions = 131072, .kv_heads = 8});
  s.ropes = {read_rope(fields, 10000, c.max_position_embeddings)};
  read_swiglu(fields, c, s);
  fields.refuse_flag("attention_bias", "Mistral's projections have no biases");
  const std::int64_t window =
      fields.is_null("sliding_window") ? 0 : fields.size("sliding_window", kDefaultWindow);
  set_windows(s, window, std::vector<bool>(s.layers.size(), true));
  return std::make_shared<DecoderNetwork>(std::move(s));
}

}  // namespace

const Family kMistral = {
    .model_type = "mistral",
    .title = "Mistral",
    .summary = "Llama without biases, with a sliding window in every layer",
    .architecture = "MistralForCausalLM",
    .classifier = "MistralForSequenceClassification",
    .fields =
        swiglu_fields({{"sliding_window", Field::Kind::any, "keys visible to a query, including its own"}}),
    .read = read,
};

}  // namespace mantissa::model
