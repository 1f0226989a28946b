// GLM-4 (GLM Team, 2024): Llama with biases of q, k and v, one matrix for gate and up, and rotary positions
// for a part of each head, in pairs of neighbours. GLM-4-0414 (2025) also normalizes both branches of a
// layer.
#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

DecoderSpec read_glm(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(
      fields, c,
      {.max_positions = 131072, .kv_heads = 2, .head_dim = 128, .padding_id = 151329, .rotary_factor = 0.5});
  s.norm_eps = fields.number("rms_norm_eps", 0.00000015625);
  s.merged_gate_up = true;
  s.qkv_bias = fields.flag("attention_bias", true);
  s.rotates_neighbours = true;
  s.ropes = {read_rope(fields, 10000, c.max_position_embeddings)};
  read_swiglu(fields, c, s);
  return s;
}

std::vector<Field> glm_fields() {
  return swiglu_fields({{"attention_bias", Field::Kind::flag, "q, k and v have biases"}, kPartialRotary});
}

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  return std::make_shared<DecoderNetwork>(read_glm(fields, c));
}

std::shared_ptr<const Network> read_0414(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_glm(fields, c);
  s.norms = {.after_attention = "post_self_attn_layernorm",
             .before_mlp = "post_attention_layernorm",
             .after_mlp = "post_mlp_layernorm"};
  return std::make_shared<DecoderNetwork>(std::move(s));
}

}  // namespace

const Family kGlm = {
    .model_type = "glm",
    .title = "GLM-4",
    .summary =
        "Llama with biases of q, k and v, one matrix for gate and up, and rotary positions for a part of each head, in pairs of neighbours",
    .architecture = "GlmForCausalLM",
    .classifier = "GlmForSequenceClassification",
    .fields = glm_fields(),
    .read = read,
};

const Family kGlm4 = {
    .model_type = "glm4",
    .title = "GLM-4-0414",
    .summary = "GLM-4 with a second norm of each branch",
    .architecture = "Glm4ForCausalLM",
    .classifier = "Glm4ForSequenceClassification",
    .fields = glm_fields(),
    .read = read_0414,
};

}  // namespace mantissa::model
