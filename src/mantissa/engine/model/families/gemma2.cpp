// Gemma 2 (Gemma Team, 2024): every second layer has a window; scores and logits are soft-capped.
#include <cmath>

#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/families/gemma.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

/// Reads a cap. Null disables it; a missing field has the family's default.
double read_cap(const FieldReader& fields, const char* key, double fallback) {
  return fields.is_null(key) ? 0 : fields.number(key, fallback);
}

}  // namespace

DecoderSpec read_gemma(const FieldReader& fields, ModelConfig& c, const DecoderDefaults& defaults,
                       double score_cap, double logit_cap) {
  DecoderSpec s = read_decoder(fields, c, defaults);
  s.gain_offset = 1;
  s.norms = {.after_attention = "post_attention_layernorm",
             .before_mlp = "pre_feedforward_layernorm",
             .after_mlp = "post_feedforward_layernorm"};
  s.gate = Gate::gelu_tanh;
  s.qkv_bias = s.output_bias = fields.flag("attention_bias", false);
  s.embedding_scale = std::sqrt(static_cast<double>(s.hidden_size));
  s.attention_scale = 1 / std::sqrt(fields.number("query_pre_attn_scalar", 256));
  s.score_cap = read_cap(fields, "attn_logit_softcapping", score_cap);
  s.logit_cap = read_cap(fields, "final_logit_softcapping", logit_cap);
  require_activation(fields, "hidden_activation", "gelu_pytorch_tanh", "gelu_new");
  fields.refuse_flag("use_bidirectional_attention", "tokens attend to earlier ones only");
  return s;
}

std::vector<Field> gemma_fields(std::vector<Field> more) {
  using Kind = Field::Kind;
  std::vector<Field> fields = {{"hidden_activation", Kind::text, "activation of the MLP"},
                               {"attention_bias", Kind::flag, "q, k, v and o have biases"},
                               {"query_pre_attn_scalar", Kind::number, "scores are divided by its root"},
                               {"final_logit_softcapping", Kind::any, "bound of the logits"},
                               {"sliding_window", Kind::any, "keys visible to a query, including its own"},
                               {"layer_types", Kind::any, "kind of attention for each layer"}};
  fields.insert(fields.end(), more.begin(), more.end());
  return decoder_fields(std::move(fields));
}

std::int64_t read_gemma_window(const FieldReader& fields) {
  if (fields.is_null("sliding_window"))
    fields.fail("sliding_window", "is null, but layers of \"sliding_attention\" need a number of keys");
  return fields.size("sliding_window", 4096);
}

namespace {

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_gemma(
      fields, c, {.max_positions = 8192, .kv_heads = 4, .head_dim = 256, .tied_head = true, .padding_id = 0},
      50, 30);
  s.ropes = {read_rope(fields, 10000, c.max_position_embeddings)};
  const auto even = [](std::int64_t layer) { return layer % 2 == 0; };
  set_windows(s, read_gemma_window(fields), read_layer_types(fields, c.num_hidden_layers, even));
  return std::make_shared<DecoderNetwork>(std::move(s));
}

}  // namespace

const Family kGemma2 = {
    .model_type = "gemma2",
    .title = "Gemma 2",
    .summary =
        "norms on both sides of each branch, scaled embeddings, GeGLU, soft caps, a window in every second layer",
    .architecture = "Gemma2ForCausalLM",
    .classifier = "Gemma2ForSequenceClassification",
    .fields = gemma_fields({{"attn_logit_softcapping", Field::Kind::any, "bound of the scores"}}),
    .read = read,
};

}  // namespace mantissa::model
