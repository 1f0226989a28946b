// OLMo 2 (OLMo team, 2024): Llama whose norms follow attention and MLP instead of preceding them, and an
// RMSNorm over the whole width of q and of k.
#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(fields, c, {.max_positions = 2048, .padding_id = 1});
  s.norm_eps = fields.number("rms_norm_eps", 1e-5);
  s.qk_norms = QkNorms::width;
  s.norms = {.before_attention = "",
             .after_attention = "post_attention_layernorm",
             .before_mlp = "",
             .after_mlp = "post_feedforward_layernorm"};
  s.qkv_bias = s.output_bias = fields.flag("attention_bias", false);
  s.ropes = {read_rope(fields, 10000, c.max_position_embeddings)};
  read_swiglu(fields, c, s);
  return std::make_shared<DecoderNetwork>(std::move(s));
}

}  // namespace

const Family kOlmo2 = {
    .model_type = "olmo2",
    .title = "OLMo 2",
    .summary = "Llama with its norms after attention and MLP, and an RMSNorm over the width of q and k",
    .architecture = "Olmo2ForCausalLM",
    .classifier = "Olmo2ForSequenceClassification",
    .fields = swiglu_fields({{"attention_bias", Field::Kind::flag, "q, k, v and o have biases"}}),
    .read = read,
};

}  // namespace mantissa::model
