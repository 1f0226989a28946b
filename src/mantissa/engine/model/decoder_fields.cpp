// Conversion of the decoder's sizes between config.json and its description.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/rope_fields.h"

namespace mantissa::model {
namespace {

constexpr std::int64_t kMostLayers = 1000;  // limit, since a plan has steps for each layer
constexpr std::int64_t kLargestHead = 256;  // limit of the attention kernels

void check_heads(const FieldReader& fields, const DecoderSpec& s, bool head_dim_known) {
  if (!head_dim_known && !fields.has("head_dim") && s.hidden_size % s.heads != 0) {
    fields.fail(
        "num_attention_heads",
        fmt::format("is {}, which does not divide hidden_size {}; set head_dim, or heads that divide it",
                    s.heads, s.hidden_size));
  }
  if (s.heads % s.kv_heads != 0) {
    fields.fail("num_key_value_heads",
                fmt::format("is {}{}, which does not divide num_attention_heads {}; set a divisor of it",
                            s.kv_heads, fields.has("num_key_value_heads") ? "" : " by default", s.heads));
  }
  if (s.head_dim % 2 != 0)
    fields.fail("head_dim", fmt::format("is {}, but rotary embedding needs an even head size", s.head_dim));
  if (s.head_dim > kLargestHead) {
    fields.fail("head_dim",
                fmt::format("is {}, but attention here has head sizes up to {}", s.head_dim, kLargestHead));
  }
}

/// Valid sizes can still give a model whose size in bytes overflows a 64-bit number.
void check_parameters(const FieldReader& fields, const DecoderSpec& s) {
  const auto hidden = static_cast<double>(s.hidden_size);
  const auto layers = static_cast<double>(s.layers.size());
  const std::pair<const char*, double> parts[] = {
      {"vocab_size", 2 * hidden * static_cast<double>(s.vocab_size)},
      {"intermediate_size", 3 * hidden * static_cast<double>(s.intermediate_size) * layers},
      {"num_attention_heads",
       4 * hidden * static_cast<double>(s.heads) * static_cast<double>(s.head_dim) * layers}};
  for (const auto& [key, weights] : parts) fields.check_weights(key, weights);
}

/// Returns the id whose row the look-up does not train, or -1. A default is used if the vocabulary has it.
/// PyTorch counts a negative id from the end.
std::int64_t read_padding_id(const FieldReader& fields, std::int64_t vocabulary,
                             std::optional<std::int64_t> otherwise) {
  constexpr const char* kKey = "pad_token_id";
  if (fields.is_null(kKey)) return -1;
  if (!fields.has(kKey)) return otherwise && *otherwise < vocabulary ? *otherwise : -1;
  const std::int64_t id = fields.size(kKey, std::nullopt, vocabulary - 1, -vocabulary);
  return id < 0 ? vocabulary + id : id;
}

}  // namespace

std::vector<Field> decoder_fields(std::vector<Field> more) {
  using Kind = Field::Kind;
  std::vector<Field> fields = {
      {"hidden_size", Kind::whole, "width of the residual stream"},
      {"num_hidden_layers", Kind::whole, "layers"},
      {"num_attention_heads", Kind::whole, "heads of the queries"},
      {"num_key_value_heads", Kind::whole, "heads of the keys and values"},
      {"head_dim", Kind::whole, "width of a head"},
      {"intermediate_size", Kind::whole, "hidden size of the MLP"},
      {"max_position_embeddings", Kind::whole, "context of pre-training"},
      {"rms_norm_eps", Kind::number, "added to the mean square inside the root"},
      {"rope_theta", Kind::number,
       "base of the rotary angles; \"lwm\": that of the Large World Model for data.sequence_length"},
      {"rope_scaling", Kind::any, "scaling of the rotary angles (transformers 4)"},
      {"rope_parameters", Kind::any, "base and scaling of the rotary angles (transformers 5)"},
  };
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

std::vector<Field> swiglu_fields(std::vector<Field> more) {
  const Field own[] = {{"hidden_act", Field::Kind::text, "activation of the MLP"},
                       {"swiglu_limit", Field::Kind::any,
                        "SwiGLU reads min(gate, limit), and up within ±limit; null: no limit"}};
  more.insert(more.begin(), std::begin(own), std::end(own));
  return decoder_fields(std::move(more));
}

DecoderSpec read_decoder(const FieldReader& fields, ModelConfig& c, const DecoderDefaults& defaults) {
  DecoderSpec s;
  s.hidden_size = c.hidden_size = fields.size("hidden_size");
  c.num_hidden_layers = fields.size("num_hidden_layers", std::nullopt, kMostLayers);
  s.layers.resize(static_cast<std::size_t>(c.num_hidden_layers));
  s.heads = fields.size("num_attention_heads");
  const bool as_queries = defaults.kv_heads == 0 || fields.is_null("num_key_value_heads");
  s.kv_heads = fields.size("num_key_value_heads", as_queries ? s.heads : defaults.kv_heads);
  s.intermediate_size = fields.size("intermediate_size");
  s.vocab_size = c.vocab_size = fields.size("vocab_size");
  s.max_positions = c.max_position_embeddings =
      fields.size("max_position_embeddings", defaults.max_positions);
  s.head_dim =
      fields.size("head_dim", defaults.head_dim > 0 ? defaults.head_dim
                                                    : std::max<std::int64_t>(1, s.hidden_size / s.heads));
  s.norm_eps = fields.number("rms_norm_eps", 1e-6);
  s.initializer_range = c.initializer_range;
  s.tied_head = c.tie_word_embeddings = fields.flag("tie_word_embeddings", defaults.tied_head);
  s.padding_id = read_padding_id(fields, s.vocab_size, defaults.padding_id);
  check_heads(fields, s, defaults.head_dim > 0);
  read_rotated(fields, s, defaults.rotary_factor);
  check_parameters(fields, s);
  return s;
}

void require_activation(const FieldReader& fields, std::string_view key, std::string_view name,
                        std::string_view alias) {
  const std::string act = fields.text(key, std::string(name));
  if (act != name && act != alias)
    fields.fail(key, fmt::format("is {}, which is not supported here; supported: \"{}\"", shown(act), name));
}

void read_swiglu(const FieldReader& fields, ModelConfig& c, DecoderSpec& s) {
  require_activation(fields, "hidden_act", "silu", "swish");
  if (!fields.has("swiglu_limit")) return;
  s.swiglu_limit = fields.number("swiglu_limit", 0);
  c.notes.push_back(
      "swiglu_limit: transformers ignores this field in this family, and computes without the limit");
}

std::vector<bool> read_layer_types(const FieldReader& fields, std::int64_t layers,
                                   const std::function<bool(std::int64_t layer)>& otherwise) {
  std::vector<bool> windowed;
  const nlohmann::json* types = fields.find("layer_types");
  if (types == nullptr) {
    for (std::int64_t i = 0; i < layers; ++i) windowed.push_back(otherwise(i));
    return windowed;
  }
  if (!types->is_array() || types->size() != static_cast<std::size_t>(layers)) {
    fields.fail("layer_types",
                fmt::format("must be a list with one entry for each of the {} layers", layers));
  }
  for (const nlohmann::json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") {
      fields.fail(
          "layer_types",
          fmt::format("contains {}; supported: \"full_attention\", \"sliding_attention\"", shown(type)));
    }
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

void read_switched_windows(const FieldReader& fields, DecoderSpec& spec, std::optional<std::int64_t> window,
                           const std::function<bool(std::int64_t layer)>& otherwise) {
  constexpr const char* kWindow = "sliding_window";
  const bool has_window = fields.has(kWindow) || (window && !fields.is_null(kWindow));
  const bool uses = fields.flag("use_sliding_window", false) && has_window;
  const std::vector<bool> windowed =
      read_layer_types(fields, static_cast<std::int64_t>(spec.layers.size()),
                       [&](std::int64_t layer) { return uses && otherwise(layer); });
  if (!uses && std::ranges::find(windowed, true) != windowed.end()) {
    fields.fail("layer_types",
                "contains \"sliding_attention\", but there is no window: set use_sliding_window to true and "
                "sliding_window to a size, or all layers to \"full_attention\"");
  }
  if (has_window) set_windows(spec, fields.size(kWindow, window), windowed);
}

void set_windows(DecoderSpec& spec, std::int64_t window, const std::vector<bool>& windowed) {
  for (std::size_t i = 0; i < windowed.size(); ++i) spec.layers[i].window = windowed[i] ? window : 0;
}

void DecoderNetwork::write(nlohmann::json& out) const {
  out["hidden_size"] = s_.hidden_size;
  out["intermediate_size"] = s_.intermediate_size;
  out["num_hidden_layers"] = s_.layers.size();
  out["num_attention_heads"] = s_.heads;
  out["num_key_value_heads"] = s_.kv_heads;
  out["head_dim"] = s_.head_dim;
  out[s_.norm == Norm::rms ? "rms_norm_eps" : "layer_norm_eps"] = s_.norm_eps;
  out["max_position_embeddings"] = s_.max_positions;
  if (s_.experts) write_experts(*s_.experts, out);
  write_rope(s_, out);
}

}  // namespace mantissa::model
