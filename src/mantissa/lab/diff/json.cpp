// A comparison as JSON.
#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/files/io/hash.h"
#include "mantissa/lab/diff/diff.h"
#include "mantissa/lab/diff/trace_order.h"

namespace mantissa::lab {
namespace {

using nlohmann::json;

/// JSON has no infinities and NaN: they become text.
json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

template <class T>
json optional(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json json_of(const convert::DifferentTensor& t) {
  json out = {{"name", t.name},
              {"dtype", {io::safetensors_name(t.a.dtype), io::safetensors_name(t.b.dtype)}},
              {"shape", {t.a.shape, t.b.shape}},
              {"xxh64", {io::hex(t.hash_a), io::hex(t.hash_b)}},
              {"equal_values", t.equal_values()},
              {"count", t.comparable ? json(t.elements.count) : json()}};
  if (!t.comparable) return out;
  const convert::ElementDifferences& e = t.elements;
  out["differ"] = e.differ;
  out["nonfinite"] = e.nonfinite;
  out["zero_signs"] = e.zero_signs;
  out["nan_bits"] = e.nan_bits;
  out["first"] = nullptr;
  if (e.first) {
    out["first"] = {{"index", convert::index_of(*e.first, t.a.shape)}};
    if (convert::have_numbers(t.a.dtype, t.b.dtype)) {
      out["first"]["a"] = number(e.first_a);
      out["first"]["b"] = number(e.first_b);
    }
  }
  if (!convert::have_numbers(t.a.dtype, t.b.dtype)) return out;
  out["max_difference"] = number(e.max_abs);
  out["mean_difference"] = number(e.mean_abs());
  out["relative_difference"] = number(e.relative());
  out["relative_rms"] = number(relative_rms(e));
  out["bias"] = number(e.bias());
  out["max_ulp"] = t.unit ? number(e.max_ulp) : json();
  out["unit"] = t.unit ? json(name(*t.unit)) : json();
  return out;
}

json json_of(const std::vector<convert::UnmatchedTensor>& tensors) {
  json out = json::array();
  for (const convert::UnmatchedTensor& t : tensors)
    out.push_back({{"name", t.name}, {"nearest", t.nearest.empty() ? json() : json(t.nearest)}});
  return out;
}

json json_of(const convert::TensorDifferences& t, bool bitwise) {
  const std::vector<const convert::DifferentTensor*> differing = t.differing(bitwise);
  json list = json::array();
  for (const convert::DifferentTensor& d : t.different) list.push_back(json_of(d));
  return {{"equal", t.equal(bitwise)},
          {"compared", t.compared},
          {"bytes", t.bytes},
          {"different", differing.size()},
          {"first", differing.empty() ? json() : json(differing[0]->name)},
          {"list", std::move(list)},
          {"only_a", json_of(t.only_a)},
          {"only_b", json_of(t.only_b)}};
}

json json_of(const GradientVerdict& g) {
  return {{"name", g.name},
          {"explains", g.explains},
          {"difference", number(g.difference)},
          {"allowance", number(g.allowance)},
          {"unit", g.unit}};
}

json json_of(const ValueFormats& f) {
  json out = json::object();
  for (const auto& [key, format] : {std::pair{"store", &f.store},
                                    {"multiply", &f.multiply},
                                    {"accumulate", &f.accumulate},
                                    {"interior", &f.interior},
                                    {"output", &f.output}}) {
    if (!format->empty()) out[key] = *format;
  }
  return out;
}

json json_of(const FormatDifferences& f) {
  const bool differ = f.different > 0;
  return {{"known", {f.known_a, f.known_b}},
          {"compared", f.compared},
          {"different", f.different},
          {"first", differ ? json(f.first) : json()},
          {"a", differ ? json_of(f.a) : json()},
          {"b", differ ? json_of(f.b) : json()},
          {"text", to_text(f)}};
}

json json_of(const RoundingVerdict& v) {
  json gradients = json::array();
  for (const GradientVerdict& g : v.gradients) gradients.push_back(json_of(g));
  return {{"explains", !v.fault()},
          {"forward", v.forward ? json(v.explains) : json()},
          {"gradients", std::move(gradients)},
          {"name", v.name.empty() ? json() : json(v.name)},
          {"not_compared", v.not_compared},
          {"difference", number(v.difference)},
          {"allowance", number(v.allowance)},
          {"unit", v.unit},
          {"text", to_text(v)}};
}

json json_of(const std::vector<ConfigDifference>& config) {
  json out = json::array();
  for (const ConfigDifference& d : config) {
    const auto value = [](const std::string& text) { return text.empty() ? json() : json(text); };
    out.push_back({{"key", d.key}, {"a", value(d.a)}, {"b", value(d.b)}, {"counts", d.counts()}});
  }
  return out;
}

json json_of(const std::vector<MetricDifference>& metrics) {
  json out = json::array();
  for (const MetricDifference& d : metrics) out.push_back({{"metric", d.metric}, {"a", d.a}, {"b", d.b}});
  return out;
}

json json_of(const MetricsDifferences& m) {
  return {{"equal", m.equal()},
          {"compared", m.compared},
          {"different", m.different},
          {"last_equal", optional(m.last_equal)},
          {"first_different", optional(m.first_different)},
          {"differences", json_of(m.first)},
          {"last_step", {optional(m.last_a), optional(m.last_b)}}};
}

json json_of(const StateDifferences& s, bool bitwise) {
  return {{"step", {s.step_a, s.step_b}},
          {"progress", json_of(s.progress)},
          {"tensors", json_of(s.tensors, bitwise)}};
}

}  // namespace

std::string to_json(const Diff& d) {
  json out = {{"equal", d.equal()},
              {"bitwise", d.bitwise},
              {"verdict", verdict(d)},
              {"a", {{"path", d.a.path.string()}, {"kind", name(d.a.kind)}}},
              {"b", {{"path", d.b.path.string()}, {"kind", name(d.b.kind)}}}};
  if (d.runs) {
    const RunDifferences& r = *d.runs;
    out["config"] = json_of(r.config);
    out["metrics"] = r.metrics ? json_of(*r.metrics) : json();
    out["states"] = {{"equal", r.equal_states},
                     {"first_different", r.state ? json_of(*r.state, d.bitwise) : json()},
                     {"only_a", r.only_a},
                     {"only_b", r.only_b}};
    out["model"] = r.model ? json_of(*r.model, d.bitwise) : json();
    out["models"] = {r.model_in_a, r.model_in_b};
  }
  if (d.states) {
    out["config"] = json_of(d.config);
    out["state"] = json_of(*d.states, d.bitwise);
  }
  if (d.tensors) out["tensors"] = json_of(*d.tensors, d.bitwise);
  if (d.is_trace()) {
    const std::vector<const convert::DifferentTensor*> differing = d.tensors->differing(d.bitwise);
    const TracedOp op = differing.empty() ? TracedOp{} : traced_op(differing[0]->name);
    out["first_op"] = op.op.empty() ? json() : json{{"scope", op.scope}, {"op", op.op}};
    out["rounding"] = d.rounding ? json_of(*d.rounding) : json();
    out["formats"] = d.formats ? json_of(*d.formats) : json();
  }
  return out.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace mantissa::lab
