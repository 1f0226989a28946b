#include "mantissa/model/rope_fields.h"

#include <fmt/format.h>

namespace mantissa::model {
namespace {

using kernels::RopeScaling;
using nlohmann::json;

RopeScaling::Kind kind_of(const FieldReader& rope) {
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return RopeScaling::Kind::none;
  if (type == "linear") return RopeScaling::Kind::linear;
  if (type == "dynamic") return RopeScaling::Kind::dynamic;
  if (type == "llama3") return RopeScaling::Kind::llama3;
  if (type == "yarn") return RopeScaling::Kind::yarn;
  rope.fail("rope_type", fmt::format("is {}, which is not supported; supported: default, linear, dynamic, "
                                     "llama3, yarn",
                                     shown(type)));
}

/// `key` of an object of FILE: "FILE: rope_scaling".
FieldReader inside(const FieldReader& fields, std::string_view key, const json& object) {
  if (!object.is_object()) fields.fail(key, fmt::format("is {}, but must be an object", shown(object)));
  return {object, fmt::format("{}: {}", fields.where(), key)};
}

/// "rope_scaling" of `parameters`, an object of transformers 5: without its base; null where it is default.
json scaling_of(const json& parameters) {
  json scaling = parameters;
  scaling.erase("rope_theta");
  const std::string type = scaling.value("rope_type", scaling.value("type", "default"));
  return type == "default" ? json(nullptr) : scaling;
}

}  // namespace

RopeScaling read_rope_scaling(const FieldReader& rope, std::int64_t positions) {
  RopeScaling s;
  s.kind = kind_of(rope);
  if (s.kind == RopeScaling::Kind::none) return s;
  s.original_positions = rope.size("original_max_position_embeddings", positions);
  // transformers forms YaRN's factor from the two contexts where it is null.
  const bool formed = s.kind == RopeScaling::Kind::yarn && rope.has("original_max_position_embeddings");
  if (!rope.has("factor") && !formed)
    rope.fail("factor", "is missing; every kind of scaling but \"default\" needs it");
  s.factor =
      rope.number("factor", static_cast<double>(positions) / static_cast<double>(s.original_positions));
  if (s.factor < 1) rope.fail("factor", fmt::format("is {}, but must be at least 1", s.factor));
  if (s.kind == RopeScaling::Kind::dynamic) s.original_positions = positions;
  s.low_freq_factor = rope.number("low_freq_factor", 1);
  s.high_freq_factor = rope.number("high_freq_factor", 4);
  if (s.kind == RopeScaling::Kind::llama3 && s.high_freq_factor <= s.low_freq_factor)
    rope.fail("high_freq_factor", "must be greater than low_freq_factor");
  s.beta_fast = rope.number("beta_fast", 32);
  s.beta_slow = rope.number("beta_slow", 1);
  if (rope.has("attention_factor")) s.attention_factor = rope.number("attention_factor", 1);
  s.mscale = rope.number("mscale", 0, true);
  s.mscale_all_dim = rope.number("mscale_all_dim", 0, true);
  s.truncate = rope.flag("truncate", true);
  return s;
}

Rope read_rope(const FieldReader& fields, double theta, std::int64_t max_positions) {
  Rope rope;
  rope.theta = fields.number("rope_theta", theta);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json* object = fields.find(key);
    if (object == nullptr) continue;
    const FieldReader inner = inside(fields, key, *object);
    rope.theta = inner.number("rope_theta", rope.theta);
    if (inner.number("partial_rotary_factor", 1) != 1)
      inner.fail("partial_rotary_factor", "is not 1, which is not supported: every head is rotated whole");
    rope.scaling = read_rope_scaling(inner, max_positions);
  }
  return rope;
}

void write_rope(const DecoderSpec& spec, json& config) {
  config["rope_theta"] = spec.ropes.front().theta;
  if (spec.ropes.size() > 1) config["rope_local_base_freq"] = spec.ropes.back().theta;
  const auto parameters = config.find("rope_parameters");
  if (parameters != config.end() && parameters->is_object()) {
    config["rope_scaling"] = scaling_of(parameters->value("full_attention", *parameters));
  } else if (!config.contains("rope_scaling")) {
    config["rope_scaling"] = nullptr;
  }
  config.erase("rope_parameters");
}

}  // namespace mantissa::model
