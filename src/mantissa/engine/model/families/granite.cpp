// Granite 3 (IBM, 2024): Llama whose embeddings, scores, branches and logits have multipliers.
#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(fields, c, {.max_positions = 2048});
  s.qkv_bias = s.output_bias = fields.flag("attention_bias", false);
  s.mlp_bias = fields.flag("mlp_bias", false);
  s.ropes = {read_rope(fields, 10000, c.max_position_embeddings)};
  read_swiglu(fields, c, s);
  s.embedding_scale = fields.number("embedding_multiplier", 1);
  s.attention_scale = fields.number("attention_multiplier", 1);
  s.branch_scale = fields.number("residual_multiplier", 1);
  s.logit_divisor = fields.number("logits_scaling", 1);
  return std::make_shared<DecoderNetwork>(std::move(s));
}

}  // namespace

const Family kGranite = {
    .model_type = "granite",
    .title = "Granite 3",
    .summary = "Llama with multipliers of the embeddings, the scores, the branches and the logits",
    .architecture = "GraniteForCausalLM",
    .classifier = "GraniteForSequenceClassification",
    .fields = swiglu_fields(
        {{"attention_bias", Field::Kind::flag, "q, k, v and o have biases"},
         {"mlp_bias", Field::Kind::flag, "the MLP has biases"},
         {"embedding_multiplier", Field::Kind::number, "factor of the embeddings"},
         {"attention_multiplier", Field::Kind::number, "factor of the scores, in place of 1/√head_dim"},
         {"residual_multiplier", Field::Kind::number, "factor of the results of attention and MLP"},
         {"logits_scaling", Field::Kind::number, "divisor of the logits"}}),
    .read = read,
};

}  // namespace mantissa::model
