// Phi-3 (Abdin et al., 2024): Llama with merged projections and, by size of the model, a sliding window.
#include <fmt/format.h>

#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

/// transformers reads "su" and "yarn" as "longrope" in this family, and rejects other kinds.
void refuse_scaling(const FieldReader& fields) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const std::optional<FieldReader> rope = fields.object(key);
    if (!rope) continue;
    const std::string type = rope->text("rope_type", rope->text("type", "default"));
    if (type != "default") {
      rope->fail("rope_type",
                 fmt::format("is {}, which is not supported for Phi-3; supported: default", shown(type)));
    }
  }
}

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_decoder(fields, c, {.max_positions = 4096, .padding_id = 32000, .rotary_factor = 1});
  s.norm_eps = fields.number("rms_norm_eps", 1e-5);
  s.merged_qkv = s.merged_gate_up = true;
  refuse_scaling(fields);
  s.ropes = {read_rope(fields, 10000, c.max_position_embeddings)};
  read_swiglu(fields, c, s);
  fields.refuse_flag("attention_bias", "Phi-3's projections have no biases");
  if (fields.has("sliding_window"))
    set_windows(s, fields.size("sliding_window"), std::vector<bool>(s.layers.size(), true));
  return std::make_shared<DecoderNetwork>(std::move(s));
}

}  // namespace

const Family kPhi3 = {
    .model_type = "phi3",
    .title = "Phi-3",
    .summary = "Llama with one matrix for q, k and v and one for gate and up; an optional sliding window",
    .architecture = "Phi3ForCausalLM",
    .classifier = "Phi3ForSequenceClassification",
    .fields = swiglu_fields(
        {kPartialRotary, {"sliding_window", Field::Kind::any, "keys visible to a query, including its own"}}),
    .read = read,
};

}  // namespace mantissa::model
