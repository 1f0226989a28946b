#include "mantissa/model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::model {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostLayers = 1000;  // of the deepest known; a plan has steps for each layer
constexpr std::int64_t kLargestSize = (std::int64_t{1} << 31) - 1;  // ids and rows are 32-bit
constexpr double kMostParameters = 1e13;

/// A value as a message shows it: on one line, and not the whole of a long one.
std::string shown(const json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  constexpr std::size_t kLongest = 80;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  return text;
}

/// Reads typed fields of one object and names them when they are wrong.
class FieldReader {
 public:
  FieldReader(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  const json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  [[noreturn]] void fail(const char* key, const std::string& what) const {
    throw ConfigError(fmt::format("{}: \"{}\" {}", where_, key, what));
  }

  std::int64_t size(const char* key, std::optional<std::int64_t> fallback,
                    std::int64_t most = kLargestSize) const {
    const json* v = find(key);
    if (v == nullptr) {
      if (!fallback) fail(key, "is missing; a llama config needs it");
      return *fallback;
    }
    if (!v->is_number_integer()) fail(key, fmt::format("is {}, but must be a whole number", shown(*v)));
    const auto n = v->get<std::int64_t>();  // negative where the file has 2^63 or more
    if (n < 1 || n > most) fail(key, fmt::format("is {}, but must be between 1 and {}", shown(*v), most));
    return n;
  }

  double number(const char* key, double fallback, bool zero_allowed = false) const {
    const json* v = find(key);
    if (v == nullptr) return fallback;
    if (!v->is_number()) fail(key, fmt::format("is {}, but must be a number", shown(*v)));
    const double x = v->get<double>();
    if (!std::isfinite(x) || x < 0 || (x == 0 && !zero_allowed))
      fail(key, fmt::format("is {}, but must be positive", shown(*v)));
    using Limits = std::numeric_limits<float>;  // what the kernels compute with
    if (x != 0 && (x < Limits::min() || x > Limits::max()))
      fail(key, fmt::format("is {}, but must be a number that f32 can hold", shown(*v)));
    return x;
  }

  bool flag(const char* key, bool fallback) const {
    const json* v = find(key);
    if (v == nullptr) return fallback;
    if (!v->is_boolean()) fail(key, fmt::format("is {}, but must be true or false", shown(*v)));
    return v->get<bool>();
  }

  std::string text(const char* key, const std::string& fallback) const {
    const json* v = find(key);
    if (v == nullptr) return fallback;
    if (!v->is_string()) fail(key, fmt::format("is {}, but must be a string", shown(*v)));
    return v->get<std::string>();
  }

 private:
  const json& object_;
  std::string where_;
};

/// transformers 5 writes rope_parameters, 4 wrote rope_theta and rope_scaling.
double read_rope(const FieldReader& fields, const std::string& where) {
  double theta = fields.number("rope_theta", 10000.0);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json* rope = fields.find(key);
    if (rope == nullptr) continue;
    if (!rope->is_object()) fields.fail(key, fmt::format("is {}, but must be an object", shown(*rope)));
    const FieldReader inner(*rope, fmt::format("{}: {}", where, key));
    theta = inner.number("rope_theta", theta);
    const std::string type = inner.text("rope_type", inner.text("type", "default"));
    if (type != "default") {
      fields.fail(key,
                  fmt::format("asks for rope type {}, which changes the result; this version has \"default\"",
                              shown(type)));
    }
  }
  return theta;
}

void refuse_what_changes_the_result(const FieldReader& fields, ModelConfig& c) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (fields.flag(key, false)) fields.fail(key, "is true; this version has Linear layers without bias");
  }
  const std::string act = fields.text("hidden_act", "silu");
  if (act != "silu" && act != "swish")
    fields.fail("hidden_act", fmt::format("is {}; this version has \"silu\" (SwiGLU)", shown(act)));
  if (fields.find("sliding_window") != nullptr && fields.flag("use_sliding_window", true)) {
    fields.fail("sliding_window",
                "is set; this version attends to the whole prefix; use a model without a window");
  }
  if (const json* types = fields.find("layer_types"); types != nullptr) {
    for (const json& type : *types) {
      if (type != "full_attention")
        fields.fail("layer_types",
                    fmt::format("holds {}; this version has \"full_attention\" only", shown(type)));
    }
  }
  if (fields.find("quantization_config") != nullptr) {
    fields.fail(
        "quantization_config",
        "is set: the weights are codes with scales of their own; multiply those of 8-bit "
        "floating-point formats with mantissa convert IN OUT --dtype bf16, or load the weights before "
        "they were quantised");
  }
  if (fields.number("pretraining_tp", 1) != 1)
    c.notes.push_back("pretraining_tp is read as 1: the products are computed whole");
  for (const char* key : {"attention_dropout", "hidden_dropout", "dropout"}) {
    if (fields.number(key, 0, true) != 0) c.notes.push_back(fmt::format("{} is read as 0", key));
  }
}

/// One id or several, which generation compares with its own.
void check_end_of_text(const FieldReader& fields) {
  const json* ids = fields.find("eos_token_id");
  if (ids == nullptr) return;
  const auto is_id = [](const json& id) {
    return id.is_number_integer() && id >= std::numeric_limits<std::int32_t>::min() &&
           id <= std::numeric_limits<std::int32_t>::max();
  };
  if (ids->is_array() ? std::all_of(ids->begin(), ids->end(), is_id) : is_id(*ids)) return;
  fields.fail("eos_token_id", fmt::format("is {}, but must be an id or a list of ids", shown(*ids)));
}

void check_heads(const FieldReader& fields, const ModelConfig& c, bool head_dim_given) {
  if (!head_dim_given && c.hidden_size % c.num_attention_heads != 0) {
    fields.fail(
        "num_attention_heads",
        fmt::format("is {}, which does not divide hidden_size {}; set head_dim, or heads that divide it",
                    c.num_attention_heads, c.hidden_size));
  }
  if (c.num_attention_heads % c.num_key_value_heads != 0) {
    fields.fail("num_key_value_heads",
                fmt::format("is {}, which does not divide num_attention_heads {}; take a divisor of it",
                            c.num_key_value_heads, c.num_attention_heads));
  }
  if (c.head_dim % 2 != 0)
    fields.fail("head_dim", fmt::format("is {}, but rotary embedding needs an even head size", c.head_dim));
  if (c.head_dim > 256)
    fields.fail("head_dim", fmt::format("is {}, but attention here has head sizes up to 256", c.head_dim));
}

/// Sizes that each could be may still make a model whose bytes no number counts.
void check_parameters(const FieldReader& fields, const ModelConfig& c) {
  const auto hidden = static_cast<double>(c.hidden_size);
  const auto layers = static_cast<double>(c.num_hidden_layers);
  const std::pair<const char*, double> parts[] = {
      {"vocab_size", 2 * hidden * static_cast<double>(c.vocab_size)},
      {"intermediate_size", 3 * hidden * static_cast<double>(c.intermediate_size) * layers},
      {"num_attention_heads",
       4 * hidden * static_cast<double>(c.num_attention_heads) * static_cast<double>(c.head_dim) * layers}};
  for (const auto& [key, parameters] : parts) {
    if (parameters <= kMostParameters) continue;
    fields.fail(key,
                fmt::format("makes, with hidden_size {} and {} layers, {:.2g} weights; {:.0e} is the most: "
                            "check the sizes",
                            c.hidden_size, c.num_hidden_layers, parameters, kMostParameters));
  }
}

}  // namespace

std::int64_t ModelConfig::parameters() const {
  const std::int64_t attention = hidden_size * head_dim * (2 * num_attention_heads + 2 * num_key_value_heads);
  const std::int64_t layer = attention + 3 * hidden_size * intermediate_size + 2 * hidden_size;
  return num_hidden_layers * layer + hidden_size + vocab_size * hidden_size * (tie_word_embeddings ? 1 : 2);
}

ModelConfig parse_model_config(const json& object, const std::string& where) {
  if (!object.is_object())
    throw ConfigError(fmt::format("{}: must hold a JSON object with the model's sizes", where));
  const FieldReader fields(object, where);
  ModelConfig c;
  c.source = object;
  c.model_type = fields.text("model_type", "llama");
  if (c.model_type != "llama") {
    fields.fail("model_type",
                fmt::format("is {}; this version trains \"llama\" models", shown(c.model_type)));
  }
  c.hidden_size = fields.size("hidden_size", std::nullopt);
  c.num_hidden_layers = fields.size("num_hidden_layers", std::nullopt, kMostLayers);
  c.num_attention_heads = fields.size("num_attention_heads", std::nullopt);
  c.num_key_value_heads = fields.size("num_key_value_heads", c.num_attention_heads);
  c.intermediate_size = fields.size("intermediate_size", std::nullopt);
  c.vocab_size = fields.size("vocab_size", std::nullopt);
  c.max_position_embeddings = fields.size("max_position_embeddings", 2048);
  c.head_dim = fields.size("head_dim", std::max<std::int64_t>(1, c.hidden_size / c.num_attention_heads));
  c.rms_norm_eps = fields.number("rms_norm_eps", 1e-6);
  c.initializer_range = fields.number("initializer_range", 0.02);
  c.tie_word_embeddings = fields.flag("tie_word_embeddings", false);
  c.rope_theta = read_rope(fields, where);
  refuse_what_changes_the_result(fields, c);
  check_end_of_text(fields);
  check_heads(fields, c, fields.find("head_dim") != nullptr);
  check_parameters(fields, c);
  return c;
}

json to_json(const ModelConfig& c, const std::string& dtype) {
  json out = c.source;
  out.erase("rope_parameters");
  out.erase("dtype");
  out["model_type"] = c.model_type;
  out["architectures"] = {"LlamaForCausalLM"};
  out["vocab_size"] = c.vocab_size;
  out["hidden_size"] = c.hidden_size;
  out["intermediate_size"] = c.intermediate_size;
  out["num_hidden_layers"] = c.num_hidden_layers;
  out["num_attention_heads"] = c.num_attention_heads;
  out["num_key_value_heads"] = c.num_key_value_heads;
  out["head_dim"] = c.head_dim;
  out["max_position_embeddings"] = c.max_position_embeddings;
  out["rms_norm_eps"] = c.rms_norm_eps;
  out["rope_theta"] = c.rope_theta;
  out["rope_scaling"] = nullptr;
  out["initializer_range"] = c.initializer_range;
  out["tie_word_embeddings"] = c.tie_word_embeddings;
  out["hidden_act"] = "silu";
  out["attention_bias"] = false;
  out["mlp_bias"] = false;
  out["torch_dtype"] = dtype;
  return out;
}

}  // namespace mantissa::model
