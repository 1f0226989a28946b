// Qwen3 (Yang et al., 2025): no biases by default, and an RMSNorm over each head of q and k.
#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/families/qwen.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(fields, c, {.max_positions = 32768, .kv_heads = 32, .head_dim = 128});
  s.qk_norms = QkNorms::heads;
  s.qkv_bias = s.output_bias = fields.flag("attention_bias", false);
  s.ropes = {read_rope(fields, 10000, c.max_position_embeddings)};
  read_swiglu(fields, c, s);
  read_qwen_windows(fields, s);
  return std::make_shared<DecoderNetwork>(std::move(s));
}

}  // namespace

const Family kQwen3 = {
    .model_type = "qwen3",
    .title = "Qwen3",
    .summary = "Llama with an RMSNorm over each head of q and k; windows as in Qwen2",
    .architecture = "Qwen3ForCausalLM",
    .classifier = "Qwen3ForSequenceClassification",
    .fields = qwen_fields({{"attention_bias", Field::Kind::flag, "q, k, v and o have biases"}}),
    .read = read,
};

}  // namespace mantissa::model
