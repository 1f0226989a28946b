// Mixtral (Jiang et al., 2024): Mistral with experts in every layer, whose weights sum to 1.
#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(fields, c, {.max_positions = 131072, .kv_heads = 8});
  s.norm_eps = fields.number("rms_norm_eps", 1e-5);
  s.ropes = {read_rope(fields, 1e6, c.max_position_embeddings)};
  read_swiglu(fields, c, s);
  fields.refuse_flag("attention_bias", "Mixtral's projections have no biases");
  if (fields.number("router_jitter_noise", 0, true) != 0)
    fields.fail("router_jitter_noise",
                "adds noise to the router in training, which is not supported; set it to 0");
  if (fields.has("sliding_window"))
    set_windows(s, fields.size("sliding_window"), std::vector<bool>(s.layers.size(), true));
  s.experts = read_experts(fields, c, {.count_key = "num_local_experts", .count = 8, .chosen = 2},
                           s.intermediate_size);
  s.experts->normalized = true;
  s.experts->scope = "block_sparse_moe";
  s.experts->gate = "w1";
  s.experts->up = "w3";
  s.experts->down = "w2";
  return std::make_shared<DecoderNetwork>(std::move(s));
}

std::vector<Field> fields() {
  std::vector<Field> all = expert_fields("num_local_experts");
  all.push_back({"sliding_window", Field::Kind::any, "keys visible to a query, including its own"});
  return swiglu_fields(std::move(all));
}

}  // namespace

const Family kMixtral = {
    .model_type = "mixtral",
    .title = "Mixtral",
    .summary = "Mistral with experts in place of the MLP of every layer",
    .architecture = "MixtralForCausalLM",
    .classifier = "MixtralForSequenceClassification",
    .fields = fields(),
    .read = read,
};

}  // namespace mantissa::model
