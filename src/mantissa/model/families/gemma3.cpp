// Gemma 3, text only (Gemma Team, 2025): norms over the heads of q and k; five layers of six have a window
// and rotary angles of their own base.
#include "mantissa/model/families/families.h"
#include "mantissa/model/families/gemma.h"
#include "mantissa/model/rope_fields.h"

namespace mantissa::model {
namespace {

constexpr double kFullTheta = 1e6, kWindowTheta = 1e4;

/// The tables of the layers that see the whole prefix, and of those with a window. transformers 5 writes one
/// object for each kind, 4 wrote rope_theta with rope_scaling and rope_local_base_freq.
std::vector<Rope> read_ropes(const FieldReader& fields, std::int64_t positions) {
  const nlohmann::json* v5 = fields.find("rope_parameters");
  if (v5 == nullptr || !v5->is_object() || !v5->contains("full_attention")) {
    Rope local{.name = "rope.local", .theta = fields.number("rope_local_base_freq", kWindowTheta)};
    return {read_rope(fields, kFullTheta, positions), local};
  }
  const auto table = [&](const char* kind, const char* name, double theta) {
    const nlohmann::json empty = nlohmann::json::object();
    const auto found = v5->find(kind);
    const nlohmann::json& object = found != v5->end() && found->is_object() ? *found : empty;
    const FieldReader inner(object, fields.where() + ": rope_parameters." + kind);
    return Rope{name, inner.number("rope_theta", theta), read_rope_scaling(inner, positions)};
  };
  std::vector<Rope> ropes = {table("full_attention", "rope", kFullTheta),
                             table("sliding_attention", "rope.local", kWindowTheta)};
  if (ropes.back().scaling.kind != kernels::RopeScaling::Kind::none) {
    fields.fail("rope_parameters",
                "scales the angles of sliding_attention layers, which is not supported; transformers 4 "
                "cannot express it");
  }
  return ropes;
}

bool has_window(const FieldReader& fields, std::int64_t layer) {
  return (layer + 1) % fields.size("sliding_window_pattern", 6) != 0;
}

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  DecoderSpec s = read_gemma(
      fields, c, {.max_positions = 131072, .kv_heads = 4, .head_dim = 256, .tied_head = true}, 0, 0);
  s.head_norms = true;
  s.ropes = read_ropes(fields, c.max_position_embeddings);
  const std::vector<bool> windowed = read_layer_types(fields, c.num_hidden_layers, has_window);
  set_windows(s, fields.size("sliding_window", 4096), windowed);
  for (std::size_t i = 0; i < windowed.size(); ++i) s.layers[i].rope = windowed[i] ? 1 : 0;
  return std::make_shared<Decoder>(std::move(s));
}

}  // namespace

const Family kGemma3 = {
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .fields = gemma_fields(
        {{"rope_local_base_freq", Field::Kind::number, "base of the windowed layers' angles"},
         {"sliding_window_pattern", Field::Kind::whole, "every layer of this number sees the whole prefix"}}),
    .trunk_prefix = "model.",
    .derived = {"rotary_emb.inv_freq"},
    .read = read,
};

}  // namespace mantissa::model
