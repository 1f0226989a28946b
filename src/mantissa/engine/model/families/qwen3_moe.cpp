// Qwen3-MoE (Yang et al., 2025): Qwen3 with experts, whose softmax runs over all of them.
#include <algorithm>

#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

/// Layer i (from 0) has experts if mlp_only_layers lacks it and i + 1 is a multiple of decoder_sparse_step.
void read_sparse_layers(const FieldReader& fields, Experts& e) {
  const std::int64_t step = fields.size("decoder_sparse_step", 1);
  for (std::size_t i = 0; i < e.layers.size(); ++i)
    e.layers[i] = static_cast<std::int64_t>(i + 1) % step == 0;
  const nlohmann::json* dense = fields.find("mlp_only_layers");
  if (dense == nullptr) return;
  if (!dense->is_array()) fields.fail("mlp_only_layers", "must be a list of layers");
  for (const nlohmann::json& layer : *dense) {
    // Numbers of a config file are signed, those of config.json are not.
    const std::int64_t number = layer.is_number_integer() ? layer.get<std::int64_t>() : -1;
    if (number < 0 || number >= static_cast<std::int64_t>(e.layers.size())) {
      fields.fail("mlp_only_layers", "contains " + shown(layer) +
                                         ", which is not the number of a layer from 0 to " +
                                         std::to_string(e.layers.size() - 1));
    }
    e.layers[static_cast<std::size_t>(number)] = false;
  }
}

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(fields, c, {.max_positions = 32768, .kv_heads = 4});
  s.qk_norms = QkNorms::heads;
  s.qkv_bias = s.output_bias = fields.flag("attention_bias", false);
  s.ropes = {read_rope(fields, 10000, c.max_position_embeddings)};
  read_swiglu(fields, c, s);
  if (fields.flag("use_sliding_window", false) && !fields.is_null("sliding_window"))
    set_windows(s, fields.size("sliding_window", 4096), std::vector<bool>(s.layers.size(), true));
  s.experts = read_experts(fields, c, {.count_key = "num_experts", .count = 128, .chosen = 8},
                           fields.size("moe_intermediate_size", 768));
  s.experts->normalized = fields.flag("norm_topk_prob", false);
  read_sparse_layers(fields, *s.experts);
  return std::make_shared<DecoderNetwork>(std::move(s));
}

std::vector<Field> fields() {
  using Kind = Field::Kind;
  std::vector<Field> all = expert_fields("num_experts");
  const std::vector<Field> own = {
      {"attention_bias", Kind::flag, "q, k, v and o have biases"},
      {"use_sliding_window", Kind::flag, "every layer has the window"},
      {"sliding_window", Kind::any, "keys visible to a query, including its own"},
      {"moe_intermediate_size", Kind::whole, "hidden size of an expert's MLP"},
      {"norm_topk_prob", Kind::flag, "the weights of a token's experts sum to 1"},
      {"decoder_sparse_step", Kind::whole, "every n-th layer has experts, the others an MLP"},
      {"mlp_only_layers", Kind::any, "list of layers, from 0, with an MLP in place of experts"},
  };
  all.insert(all.begin(), own.begin(), own.end());
  return swiglu_fields(std::move(all));
}

}  // namespace

const Family kQwen3Moe = {
    .model_type = "qwen3_moe",
    .title = "Qwen3-MoE",
    .summary = "Qwen3 with experts in place of the MLP of some or all layers",
    .architecture = "Qwen3MoeForCausalLM",
    .classifier = "Qwen3MoeForSequenceClassification",
    .fields = fields(),
    .read = read,
};

}  // namespace mantissa::model
