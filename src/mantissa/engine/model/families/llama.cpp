// Llama (Touvron et al., 2023): RMSNorm, rotary grouped-query attention, SwiGLU; optional biases.
#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(fields, c, {});
  s.qkv_bias = s.output_bias = fields.flag("attention_bias", false);
  s.mlp_bias = fields.flag("mlp_bias", false);
  s.ropes = {read_rope(fields, 10000, c.max_position_embeddings)};
  read_swiglu(fields, c, s);
  fields.refuse("sliding_window", "Llama attends to the whole prefix; Mistral and Qwen have windows");
  if (fields.number("pretraining_tp", 1) != 1)
    c.notes.push_back("pretraining_tp is read as 1: the products are not split");
  return std::make_shared<DecoderNetwork>(std::move(s));
}

}  // namespace

const Family kLlama = {
    .model_type = "llama",
    .title = "Llama",
    .summary = "RMSNorm, grouped-query attention with rotary positions, SwiGLU; optional biases",
    .architecture = "LlamaForCausalLM",
    .classifier = "LlamaForSequenceClassification",
    .fields = swiglu_fields({{"attention_bias", Field::Kind::flag, "q, k, v and o have biases"},
                             {"mlp_bias", Field::Kind::flag, "the MLP has biases"}}),
    .read = read,
};

}  // namespace mantissa::model
