#include "mantissa/engine/model/rope_override.h"

#include <algorithm>
#include <array>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/model/network.h"

namespace mantissa::model {
namespace {

constexpr const char* kTheta = "rope_theta";
constexpr const char* kPositions = "max_position_embeddings";

struct LwmStage {
  std::int64_t length;  // tokens
  double theta;
};

constexpr std::array kLwmStages = {
    LwmStage{std::int64_t{1} << 12, 1e4},   LwmStage{std::int64_t{1} << 15, 1e6},
    LwmStage{std::int64_t{1} << 17, 1e7},   LwmStage{std::int64_t{1} << 18, 1e7},
    LwmStage{std::int64_t{1} << 19, 2.5e7}, LwmStage{std::int64_t{1} << 20, 5e7},
};

/// Returns config.json of `model` in the form of transformers 4.
nlohmann::json v4_fields(const ModelConfig& model) {
  nlohmann::json fields = model.source;
  model.network->write(fields);
  return fields;
}

}  // namespace

double lwm_theta(std::int64_t length) {
  const auto stage = std::ranges::lower_bound(kLwmStages, length, {}, &LwmStage::length);
  if (stage != kLwmStages.end()) return stage->theta;
  throw ConfigError("rope_theta = \"{}\" has no base for {} tokens; its table ends at {}. Fix: a number",
                    kLwm, length, kLwmStages.back().length);
}

ModelConfig with_rope(const ModelConfig& model, double theta, std::int64_t positions,
                      std::string_view where) {
  nlohmann::json fields = v4_fields(model);
  if (!fields.contains(kTheta)) {
    throw ConfigError("{}: a model of the type {} has no rotary angles. Fix: remove the key", where,
                      model.model_type);
  }
  const bool scaled = fields.contains("rope_scaling") && !fields["rope_scaling"].is_null();
  if (scaled && theta != 0 && theta != fields[kTheta].get<double>()) {
    throw ConfigError(
        "{}: the model scales its rotary angles (rope_scaling), which another base would change "
        "twice. Fix: remove the key, or rope_scaling",
        where);
  }
  if (theta != 0) fields[kTheta] = theta;
  if (!scaled && positions > model.max_position_embeddings) fields[kPositions] = positions;
  ModelConfig out = parse_model_config(fields, std::string(where));
  out.adapter = model.adapter;
  out.notes = model.notes;
  return out;
}

double rope_theta(const ModelConfig& model) {
  const nlohmann::json fields = v4_fields(model);
  const auto theta = fields.find(kTheta);
  return theta == fields.end() ? 0 : theta->get<double>();
}

}  // namespace mantissa::model
