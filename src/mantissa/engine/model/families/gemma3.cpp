// Gemma 3, text only (Gemma Team, 2025): norms over the heads of q and k; five of six layers have a window,
// and rotary angles with a separate base.
#include "mantissa/engine/model/families/families.h"
#include "mantissa/engine/model/families/gemma.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

constexpr double kFullTheta = 1e6, kWindowTheta = 1e4;

/// Reads the angles of one kind of layer from its object in rope_parameters, if transformers 5 wrote the
/// file.
Rope read_table(const FieldReader& fields, const char* kind, Rope rope, std::int64_t positions) {
  const std::optional<FieldReader> kinds = fields.object("rope_parameters");
  if (!kinds) return rope;
  if (!kinds->has("full_attention") && !kinds->has("sliding_attention"))
    fields.fail("rope_parameters", "must contain \"full_attention\" and \"sliding_attention\"");
  const std::optional<FieldReader> own = kinds->object(kind);
  if (!own) return rope;
  refuse_partial_rotary(*own);
  rope.theta = own->number("rope_theta", rope.theta);
  rope.scaling = read_rope_scaling(*own, positions);
  return rope;
}

/// Reads the tables of the layers without and with a window. transformers 5 writes one object for each kind.
/// transformers 4 writes rope_local_base_freq, and rope_theta with rope_scaling, which takes precedence.
std::vector<Rope> read_ropes(const FieldReader& fields, std::int64_t positions) {
  Rope full = read_table(fields, "full_attention",
                         {.name = "rope", .theta = fields.number("rope_theta", kFullTheta)}, positions);
  if (const std::optional<FieldReader> scaling = fields.object("rope_scaling"); scaling) {
    full.theta = scaling->number("rope_theta", full.theta);
    full.scaling = read_rope_scaling(*scaling, positions);
  }
  const Rope local = read_table(
      fields, "sliding_attention",
      {.name = "rope.local", .theta = fields.number("rope_local_base_freq", kWindowTheta)}, positions);
  if (local.scaling.kind != kernels::RopeScaling::Kind::none) {
    fields.fail("rope_parameters",
                "scales the angles of sliding_attention layers, which is not supported; transformers 4 "
                "cannot express it");
  }
  return {full, local};
}

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  fields.refuse("attn_logit_softcapping", "transformers has the field but does not apply it; set it to null");
  DecoderSpec s = read_gemma(
      fields, c,
      {.max_positions = 131072, .kv_heads = 4, .head_dim = 256, .tied_head = true, .padding_id = 0}, 0, 0);
  s.qk_norms = QkNorms::heads;
  s.ropes = read_ropes(fields, c.max_position_embeddings);
  const std::vector<bool> windowed = read_layer_types(fields, c.num_hidden_layers, [&](std::int64_t layer) {
    return (layer + 1) % fields.size("sliding_window_pattern", 6) != 0;
  });
  set_windows(s, read_gemma_window(fields), windowed);
  for (std::size_t i = 0; i < windowed.size(); ++i) s.layers[i].rope = windowed[i] ? 1 : 0;
  return std::make_shared<DecoderNetwork>(std::move(s));
}

}  // namespace

const Family kGemma3 = {
    .model_type = "gemma3_text",
    .title = "Gemma 3 (text)",
    .summary =
        "Gemma 2 with norms over heads and without a cap of the scores; layers with a window use separate rotary angles",
    .architecture = "Gemma3ForCausalLM",
    .classifier = "Gemma3TextForSequenceClassification",
    .fields =
        gemma_fields({{"rope_local_base_freq", Field::Kind::number, "base of the windowed layers' angles"},
                      {"sliding_window_pattern", Field::Kind::whole,
                       "every layer of this number attends to the whole prefix"}}),
    .read = read,
};

}  // namespace mantissa::model
