#include "mantissa/engine/model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/engine/model/adapter.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/engine/model/graphs.h"

namespace mantissa::model {
namespace {

using nlohmann::json;

const Family& family_of(const FieldReader& fields, const std::string& model_type) {
  if (const Family* family = find_family(model_type); family != nullptr) return *family;
  if (fields.has("text_config")) {
    fields.fail("model_type",
                fmt::format("is {}, a multimodal model, which is not supported. Fix: save only its text "
                            "model, in Python model.model.language_model.save_pretrained(DIR)",
                            shown(model_type)));
  }
  const std::vector<std::string> known = names_of(all_families(), &Family::model_type);
  fields.fail("model_type", fmt::format("is {}, which is not supported{}; supported: {}", shown(model_type),
                                        did_you_mean(model_type, known), list_of(known)));
}

/// Accepts one id or several, which generation compares with generated ids.
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

/// Returns true for a classifier of one label, which is a reward model. Throws for other numbers of labels.
bool reads_scores(const FieldReader& fields, const ModelConfig& c) {
  const json* architectures = fields.find("architectures");
  if (architectures == nullptr || !architectures->is_array()) return false;
  const bool classifies = std::ranges::any_of(
      *architectures, [&](const json& name) { return name.is_string() && name == c.family->classifier; });
  if (!classifies) return false;
  constexpr std::int64_t kDefault = 2;  // of transformers
  const json *labels = fields.find("id2label"), *number = fields.find("num_labels");
  std::int64_t count = kDefault;
  if (labels != nullptr && labels->is_object()) {
    count = static_cast<std::int64_t>(labels->size());
  } else if (number != nullptr && number->is_number_integer()) {
    count = number->get<std::int64_t>();
  }
  if (count != 1) {
    fields.fail("architectures",
                fmt::format("is {} with {} labels; only classifiers of one label, reward models, are "
                            "supported",
                            c.family->classifier, count));
  }
  return true;
}

void note_dropout(const FieldReader& fields, ModelConfig& c) {
  constexpr const char *kAttention = "; train.attention_dropout sets it",
                       *kResidual = "; train.residual_dropout sets it";
  for (const auto& [key, cure] : {std::pair("attention_dropout", kAttention),
                                  {"attn_pdrop", kAttention},
                                  {"hidden_dropout", kResidual},
                                  {"resid_pdrop", kResidual},
                                  {"dropout", ""},
                                  {"embd_pdrop", ""}}) {
    if (fields.number(key, 0, true) != 0) c.notes.push_back(fmt::format("{} is read as 0{}", key, cure));
  }
}

}  // namespace

std::int64_t ModelConfig::parameters() const {
  std::int64_t count = 0;
  const graph::Graph graph = build_forward(*this);
  for (const graph::ValueId p : graph.parameters()) {
    if (adapter == nullptr || !adapter->owns(graph.value(p).name)) count += graph.value(p).shape.count();
  }
  return count;
}

std::function<std::optional<QuantFormat>(std::string_view)> held_in_blocks(const ModelConfig& config) {
  if (!config.base) return {};
  // The head is a product too where all logits are computed, but no linear layer.
  std::set<std::string, std::less<>> held;
  for (const LinearLayer& layer : linear_layers(config)) held.insert(layer.scope + ".weight");
  return [base = config.base, held = std::move(held)](std::string_view parameter) {
    return held.contains(parameter) ? base : std::nullopt;
  };
}

ModelConfig parse_model_config(const json& object, const std::string& where) {
  if (!object.is_object()) throw ConfigError("{}: must hold a JSON object with the model's sizes", where);
  const FieldReader fields(object, where);
  ModelConfig c;
  c.source = object;
  c.model_type = fields.text("model_type", "llama");
  c.family = &family_of(fields, c.model_type);
  fields.refuse("quantization_config",
                "the weights are quantized codes with separate scales; dequantize 8-bit floating-point "
                "formats with mantissa convert IN OUT --dtype bf16, or load the weights before quantization");
  c.initializer_range = fields.number("initializer_range", 0.02);
  check_end_of_text(fields);
  c.network = c.family->read(fields, c);
  c.scores = reads_scores(fields, c);
  note_dropout(fields, c);
  return c;
}

ModelConfig reward_model(ModelConfig config) {
  config.scores = true;
  return config;
}

json to_json(const ModelConfig& c, const std::string& dtype) {
  json out = c.source;
  out.erase("dtype");
  out["model_type"] = c.model_type;
  out["architectures"] = {c.scores ? c.family->classifier : c.family->architecture};
  if (c.scores) {
    out.erase("num_labels");
    out["id2label"] = {{"0", "LABEL_0"}};
    out["label2id"] = {{"LABEL_0", 0}};
  }
  out["vocab_size"] = c.vocab_size;
  out["initializer_range"] = c.initializer_range;
  out["tie_word_embeddings"] = c.tie_word_embeddings;
  out["torch_dtype"] = dtype;
  c.network->write(out);
  return out;
}

}  // namespace mantissa::model
