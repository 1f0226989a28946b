// OLMoE (Muennighoff et al., 2024): a decoder with many small experts in every layer, and an RMSNorm over the
// whole width of q and of k.
#include <fmt/format.h>

#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(fields, c, {.max_positions = 4096, .padding_id = 1});
  if (s.heads * s.head_dim != s.hidden_size) {
    fields.fail("head_dim",
                fmt::format("is {}, but the norms of q and k are as wide as hidden_size {}; set {}",
                            s.head_dim, s.hidden_size, s.hidden_size / s.heads));
  }
  s.norm_eps = fields.number("rms_norm_eps", 1e-5);
  s.qk_norms = QkNorms::width;
  s.qkv_bias = s.output_bias = fields.flag("attention_bias", false);
  s.ropes = {read_rope(fields, 10000, c.max_position_embeddings)};
  read_swiglu(fields, c, s);
  fields.refuse("clip_qkv", "q, k and v are not clipped here");
  s.experts =
      read_experts(fields, c, {.count_key = "num_experts", .count = 64, .chosen = 8, .aux_loss_coef = 0.01},
                   s.intermediate_size);
  s.experts->normalized = fields.flag("norm_topk_prob", false);
  return std::make_shared<DecoderNetwork>(std::move(s));
}

std::vector<Field> fields() {
  std::vector<Field> all = expert_fields("num_experts");
  all.push_back({"attention_bias", Field::Kind::flag, "q, k, v and o have biases"});
  all.push_back({"norm_topk_prob", Field::Kind::flag, "the weights of a token's experts sum to 1"});
  return swiglu_fields(std::move(all));
}

}  // namespace

const Family kOlmoe = {
    .model_type = "olmoe",
    .title = "OLMoE",
    .summary =
        "Llama with experts in place of the MLP of every layer, and an RMSNorm over the width of q and k",
    .architecture = "OlmoeForCausalLM",
    .classifier = "OlmoeForSequenceClassification",
    .fields = fields(),
    .read = read,
};

}  // namespace mantissa::model
