// StableLM 2 (Bellagente et al., 2024): Llama with LayerNorms and rotary positions for a part of each head.
// The 12B model has one norm for attention and MLP, and LayerNorms over the heads of q and k.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(fields, c, {.max_positions = 4096, .kv_heads = 32, .rotary_factor = 0.25});
  if (s.heads * s.head_dim != s.hidden_size) {
    fields.fail("head_dim",
                fmt::format("is {}, but StableLM's heads together are as wide as hidden_size {}; set {}",
                            s.head_dim, s.hidden_size, s.hidden_size / s.heads));
  }
  s.norm = Norm::layer;
  s.norm_eps = fields.number("layer_norm_eps", 1e-5);
  s.qkv_bias = fields.flag("use_qkv_bias", false);
  if (fields.flag("qk_layernorm", false)) s.qk_norms = QkNorms::own_heads;
  s.parallel = fields.flag("use_parallel_residual", false);
  s.ropes = {read_rope(fields, 10000, c.max_position_embeddings)};
  read_swiglu(fields, c, s);
  return std::make_shared<DecoderNetwork>(std::move(s));
}

std::vector<Field> fields() {
  using Kind = Field::Kind;
  std::vector<Field> all = swiglu_fields(
      {kPartialRotary,
       {"layer_norm_eps", Kind::number, "added to the variance inside the root"},
       {"use_qkv_bias", Kind::flag, "q, k and v have biases"},
       {"qk_layernorm", Kind::flag, "LayerNorm over each head of q and k, with a gain for each"},
       {"use_parallel_residual", Kind::flag, "attention and MLP read the same norm"}});
  std::erase_if(all, [](const Field& field) { return field.key == "rms_norm_eps"; });
  return all;
}

}  // namespace

const Family kStableLm = {
    .model_type = "stablelm",
    .title = "StableLM 2",
    .summary =
        "Llama with LayerNorms and rotary positions for a part of each head; optionally one norm for "
        "attention and MLP, and LayerNorms over the heads of q and k",
    .architecture = "StableLmForCausalLM",
    .classifier = "StableLmForSequenceClassification",
    .fields = fields(),
    .read = read,
};

}  // namespace mantissa::model
