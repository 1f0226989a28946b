#include "mantissa/engine/model/rope_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

namespace mantissa::model {
namespace {

using kernels::RopeScaling;
using Kind = RopeScaling::Kind;
using nlohmann::json;

constexpr std::pair<Kind, const char*> kKinds[] = {{Kind::none, "default"},
                                                   {Kind::linear, "linear"},
                                                   {Kind::dynamic, "dynamic"},
                                                   {Kind::llama3, "llama3"},
                                                   {Kind::yarn, "yarn"}};

Kind kind_of(const FieldReader& rope) {
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  for (const auto& [kind, name] : kKinds) {
    if (type == name) return kind;
  }
  rope.fail("rope_type", fmt::format("is {}, which is not supported; supported: default, linear, dynamic, "
                                     "llama3, yarn",
                                     shown(type)));
}

bool has_original_positions(Kind kind) {
  return kind == Kind::llama3 || kind == Kind::yarn;
}

void read_factor(const FieldReader& rope, std::int64_t positions, RopeScaling& s) {
  // For a null factor, transformers computes YaRN's factor from the two contexts.
  const bool formed = s.kind == Kind::yarn && rope.has("original_max_position_embeddings");
  if (!rope.has("factor") && !formed)
    rope.fail("factor", "is missing; every kind of scaling except \"default\" needs it");
  s.factor =
      rope.number("factor", static_cast<double>(positions) / static_cast<double>(s.original_positions));
  if (s.factor < 1) rope.fail("factor", fmt::format("is {}, but must be at least 1", s.factor));
}

/// Returns the value of rope_scaling, or null for angles that are not scaled.
json to_json(const RopeScaling& s) {
  if (s.kind == Kind::none) return nullptr;
  json out = json::object();
  for (const auto& [kind, name] : kKinds) {
    if (kind == s.kind) out["rope_type"] = name;
  }
  out["factor"] = s.factor;
  if (has_original_positions(s.kind)) out["original_max_position_embeddings"] = s.original_positions;
  if (s.kind == Kind::llama3) {
    out["low_freq_factor"] = s.low_freq_factor;
    out["high_freq_factor"] = s.high_freq_factor;
  }
  if (s.kind != Kind::yarn) return out;
  out["beta_fast"] = s.beta_fast;
  out["beta_slow"] = s.beta_slow;
  if (s.attention_factor) out["attention_factor"] = *s.attention_factor;
  if (s.mscale != 0) out["mscale"] = s.mscale;
  if (s.mscale_all_dim != 0) out["mscale_all_dim"] = s.mscale_all_dim;
  if (!s.truncate) out["truncate"] = false;
  return out;
}

}  // namespace

RopeScaling read_rope_scaling(const FieldReader& rope, std::int64_t positions) {
  RopeScaling s;
  s.kind = kind_of(rope);
  if (s.kind == Kind::none) return s;
  s.original_positions = rope.size("original_max_position_embeddings", positions);
  read_factor(rope, positions, s);
  if (s.kind == Kind::dynamic) s.original_positions = positions;
  if (s.kind == Kind::llama3) {
    for (const char* key : {"low_freq_factor", "high_freq_factor"}) {
      if (!rope.has(key)) rope.fail(key, "is missing; scaling of the kind \"llama3\" needs it");
    }
    s.low_freq_factor = rope.number("low_freq_factor", 1);
    s.high_freq_factor = rope.number("high_freq_factor", 4);
    if (s.high_freq_factor <= s.low_freq_factor)
      rope.fail("high_freq_factor", "must be greater than low_freq_factor");
  }
  if (s.kind != Kind::yarn) return s;
  s.beta_fast = rope.number("beta_fast", 32);
  s.beta_slow = rope.number("beta_slow", 1);
  if (rope.has("attention_factor")) s.attention_factor = rope.number("attention_factor", 1);
  s.mscale = rope.number("mscale", 0, true);
  s.mscale_all_dim = rope.number("mscale_all_dim", 0, true);
  s.truncate = rope.flag("truncate", true);
  return s;
}

void refuse_partial_rotary(const FieldReader& rope) {
  if (rope.number(kPartialRotary.key, 1) != 1) {
    rope.fail(kPartialRotary.key,
              "is not 1, which is not supported in this family: every head is rotated completely");
  }
}

void read_rotated(const FieldReader& fields, DecoderSpec& spec, std::optional<double> otherwise) {
  const std::optional<FieldReader> scaling = fields.object("rope_scaling");
  const std::optional<FieldReader> angles = scaling ? scaling : fields.object("rope_parameters");
  const FieldReader& where = angles && angles->has(kPartialRotary.key) ? *angles : fields;
  spec.rotated = spec.head_dim;
  if (!otherwise) return refuse_partial_rotary(where);
  const double factor = where.number(kPartialRotary.key, *otherwise);
  // As in transformers, a fraction of a value is dropped.
  const double rotated = std::floor(static_cast<double>(spec.head_dim) * factor);
  if (factor > 1 || rotated < 2 || std::fmod(rotated, 2) != 0) {
    where.fail(kPartialRotary.key, fmt::format("is {}, which rotates {} of the {} values of a head; set a "
                                               "factor up to 1 that gives an even number from 2",
                                               factor, rotated, spec.head_dim));
  }
  spec.rotated = static_cast<std::int64_t>(rotated);
  if (factor != 1 || *otherwise != 1) spec.rotary_factor = factor;
}

Rope read_rope(const FieldReader& fields, double theta, std::int64_t max_positions) {
  Rope rope;
  rope.theta = fields.number("rope_theta", theta);
  const std::optional<FieldReader> scaling = fields.object("rope_scaling");
  const std::optional<FieldReader> rope_fields = scaling ? scaling : fields.object("rope_parameters");
  if (!rope_fields) return rope;
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    if (rope_fields->has(kind))
      rope_fields->fail(
          kind,
          "is present, but all layers of this family use the same angles; move its fields one level up");
  }
  rope.theta = rope_fields->number("rope_theta", rope.theta);
  rope.scaling = read_rope_scaling(*rope_fields, max_positions);
  constexpr const char* kOriginal = "original_max_position_embeddings";
  if (has_original_positions(rope.scaling.kind) &&
      fields.size(kOriginal, rope.scaling.original_positions) != rope.scaling.original_positions) {
    fields.fail(kOriginal, fmt::format("differs from the {} of rope_scaling, and versions of transformers "
                                       "read different ones; keep the one of rope_scaling",
                                       rope.scaling.original_positions));
  }
  return rope;
}

void write_rope(const DecoderSpec& spec, json& config) {
  config["rope_theta"] = spec.ropes.front().theta;
  config["rope_scaling"] = to_json(spec.ropes.front().scaling);
  if (spec.ropes.size() > 1) config["rope_local_base_freq"] = spec.ropes.back().theta;
  if (spec.rotary_factor) config[std::string(kPartialRotary.key)] = *spec.rotary_factor;
  config.erase("rope_parameters");
}

}  // namespace mantissa::model
