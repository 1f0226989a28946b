#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/engine/graph/inserted.h"
#include "mantissa/precision/policy/fields.h"
#include "mantissa/setup/config/ranks.h"
#include "mantissa/train/explain/explained.h"
#include "mantissa/train/explain/memory.h"

namespace mantissa::explain {
namespace {

using nlohmann::json;

json ops_json(const Explained& e) {
  json out = json::array();
  for (std::size_t i = 0; i < e.rows.size(); ++i) {
    const plan::PlanRow& r = e.rows[i];
    out.push_back({{"scope", r.scope},
                   {"op", r.op},
                   {"pass", r.pass},
                   {"formats",
                    {{"store", r.stored},
                     {"multiply", r.multiplied},
                     {"accumulate", r.accumulated},
                     {"output", r.output}}},
                   {"rule", r.decided_by},
                   {"kernel", r.kernel},
                   {"flops", r.flops},
                   {"bytes", r.bytes}});
    if (!r.order.empty()) out.back()["accumulate_order"] = r.order;
    if (!e.units[i].empty()) out.back()["unit"] = e.units[i];
    if (!r.rounded.empty()) out.back()["rounded"] = r.rounded;
    if (!r.gradient.empty()) out.back()["gradient"] = r.gradient;
    if (!graph::inserted_step(r.op).empty()) out.back()["inserted"] = true;
  }
  return out;
}

json roundings_json(const Explained& e) {
  json out = json::array();
  for (const plan::RoundingRow& r : e.roundings) {
    out.push_back({{"scope", r.scope},
                   {"op", r.op},
                   {"pass", r.pass},
                   {"kind", r.kind},
                   {"name", r.name},
                   {"format", r.format},
                   {"rule", r.decided_by},
                   {"not_observed", r.unobserved.empty() ? json() : json(r.unobserved)}});
  }
  return out;
}

json memory_json(const forecast::MemoryForecast& m) {
  json all = {{"peak", m.peak()}};
  for (const auto& [name, bytes] : purposes(m)) all[name] = bytes;
  return all;
}

json ranks_json(const forecast::RanksForecast& f) {
  json of = json::array();
  for (const forecast::RankForecast& r : f.of) {
    of.push_back({{"rank", r.rank},
                  {"memory", memory_json(r.memory)},
                  {"sent_bytes",
                   {{"gradients", r.sent.gradients},
                    {"weights", r.sent.weights},
                    {"gathered", r.sent.gathered},
                    {"keys", r.sent.keys},
                    {"states", r.sent.states}}}});
  }
  const auto seconds = [](const std::optional<double>& s) { return s ? json(*s) : json(); };
  return {{"ranks", f.ranks},
          {"nodes", f.nodes},
          {"zero", f.stage},
          {"streams_gradients", f.streams},
          {"computing_seconds", f.computing},
          {"sending_seconds", seconds(f.sending)},
          {"waiting_seconds", seconds(f.waiting)},
          {"hidden_share", seconds(f.hidden())},
          {"seconds_per_step", seconds(f.seconds)},
          {"of", of}};
}

json here_json(const Here& here) {
  json formats = json::array();
  for (const auto& [format, support] : here.formats)
    formats.push_back({{"format", format}, {"how", kernels::name(support.how)}, {"why", support.why}});
  json units = json::array();
  for (const UnitUse& u : here.units) {
    units.push_back({{"name", u.unit->name},
                     {"why", u.unit->why},
                     {"peak_flops_per_second", u.peak},
                     {"relative_to_fma", u.relative_to_fma},
                     {"uses", u.uses}});
  }
  return {{"simd", here.simd},
          {"threads", here.threads},
          {"memory_bytes", here.memory_bytes},
          {"flops_per_second", here.rates.flops_per_second},
          {"bytes_per_second", here.rates.bytes_per_second},
          {"formats", formats},
          {"units", units}};
}

/// Returns doctor's term: 16-bit values are stored and converted, others are simulated in a wider format.
const char* how_text(const forecast::TargetFormat& f) {
  if (f.native) return "native";
  if (f.computed_in.empty()) return "missing";
  return f.format == "bf16" || f.format == "f16" ? "converted" : "simulated";
}

json seconds_json(double seconds) {
  return seconds == 0 ? json() : json(seconds);
}

json format_json(const forecast::TargetFormat& f, bool needed) {
  return {{"format", f.format},
          {"native", f.native},
          {"how", how_text(f)},
          {"computed_in", f.computed_in},
          {"flops_per_second", f.flops_per_second},
          {"needed", needed}};
}

/// Returns the formats of targets, widest first, followed by the plan's other formats.
json formats_json(const There& there) {
  const std::vector<std::string>& known = forecast::target_formats();
  const auto find = [](const std::vector<forecast::TargetFormat>& all, const std::string& format) {
    return std::ranges::find(all, format, &forecast::TargetFormat::format);
  };
  json formats = json::array();
  for (const std::string& format : known) {
    const auto needed = find(there.needed, format);
    const bool is_needed = needed != there.needed.end();
    formats.push_back(format_json(is_needed ? *needed : *find(there.others, format), is_needed));
  }
  for (const forecast::TargetFormat& f : there.needed) {
    if (std::ranges::find(known, f.format) == known.end()) formats.push_back(format_json(f, true));
  }
  return formats;
}

json there_json(const There& there, bool training) {
  json out = {{"name", there.target.name},
              {"description", there.target.description},
              {"formats", formats_json(there)},
              {"bytes_per_second", there.target.bytes_per_second},
              {"memory_bytes", there.target.memory_bytes},
              {"peak_bytes", there.peak_bytes},
              {"warnings", there.warnings}};
  if (training) {
    out["seconds_per_step"] = there.fits ? seconds_json(there.seconds) : json();
    out["largest_micro_batch_size"] = there.largest_micro_batch_size;
    out["sequences_that_fit"] = there.sequences_that_fit;
    out["seconds_total"] = there.fits ? seconds_json(there.total_seconds) : json();
    if (!there.stages.empty()) {
      out["limiting_stage"] = there.limiting_stage + 1;
      for (const StageThere& s : there.stages) {
        out["stages"].push_back({{"peak_bytes", s.peak_bytes},
                                 {"fits", s.fits},
                                 {"seconds_per_step", s.fits ? seconds_json(s.seconds) : json()},
                                 {"largest_micro_batch_size", s.largest_micro_batch_size},
                                 {"sequences_that_fit", s.sequences_that_fit}});
      }
    }
  } else {
    out["seconds_per_token"] = seconds_json(there.seconds);
    out["fits"] = there.fits;
  }
  return out;
}

json stages_json(const std::vector<StagePlan>& stages) {
  json out = json::array();
  for (const StagePlan& s : stages) {
    out.push_back({{"first_step", s.first},
                   {"last_step", s.last},
                   {"sequence_length", s.sequence_length},
                   {"global_batch_size", s.global_batch_size},
                   {"micro_batch_size", s.micro_batch_size},
                   {"rope_theta", s.rope_theta == 0 ? json() : json(s.rope_theta)},
                   {"lr", s.lr},
                   {"memory", memory_json(s.memory)},
                   {"seconds_per_step", s.seconds}});
  }
  return out;
}

void add_training(json& out, const Explained& e) {
  const Training& t = *e.training;
  json casts = json::array();
  for (const auto& [scope, bytes] : t.casts) casts.push_back({{"scope", scope}, {"bytes", bytes}});
  out["changes_at_steps"] = t.config.policy.changes();
  out["shards"] = t.shards;
  out["sequence_shards"] = t.sequence_shards;
  out["tokens_per_rank"] = config::tokens_per_rank(t.stage_config);
  out["reduce"] = name(t.reduce);
  out["reduce_rounding"] =
      precision::field_text(t.config.policy.fields(), *precision::find_field("reduce_rounding"));
  out["reduce_sent_bytes"] = t.sent_bytes;
  out["casts"] = casts;
  if (t.chunked_steps > 0) {
    out["chunks"] = {
        {"tokens", t.stage_config.batch.chunk_tokens}, {"steps", t.chunked_steps}, {"of", t.steps}};
  }
  if (t.adapter) {
    out["adapter"] = {{"kind", t.adapter->kind},
                      {"layers", t.adapter->layers},
                      {"rank", t.adapter->largest_rank},
                      {"parameters", t.adapter->parameters},
                      {"trained_bytes", t.adapter->trained_bytes},
                      {"frozen_bytes", t.adapter->frozen_bytes}};
    if (!t.adapter->base.empty()) out["adapter"]["base"] = t.adapter->base;
  }
  if (!t.stages.empty()) out["stages"] = stages_json(t.stages);
  if (t.rope_theta != 0) out["rope_theta"] = t.rope_theta;
  out["memory"] = memory_json(t.memory);
  if (t.ranks) out["ranks"] = ranks_json(*t.ranks);
  out["seconds_per_step"] = e.fits ? json(e.seconds) : json();
  if (e.rollout_seconds > 0) out["rollout_seconds_per_step"] = e.fits ? json(e.rollout_seconds) : json();
  out["largest_micro_batch_size"] = t.largest_micro_batch_size;
  out["exceptions"] = t.exceptions;
  out["config"] = t.config.to_toml();
}

void add_generation(json& out, const Explained& e) {
  const Generation& g = *e.generation;
  out["memory"] = {{"weights", g.weights}, {"cache", g.cache},     {"work", g.work},
                   {"tables", g.tables},   {"process", g.process}, {"peak", e.peak_bytes}};
  out["seconds_per_token"] = e.fits ? json(e.seconds) : json();
}

}  // namespace

std::string to_json(const Explained& e) {
  nlohmann::json targets = nlohmann::json::array();
  for (const There& there : e.targets) targets.push_back(there_json(there, e.training.has_value()));
  nlohmann::json out = {{"policy", {{"preset", e.preset}, {"name", e.name}, {"line", e.line}}},
                        {"loss_scale", e.loss_scale},
                        {"ops", ops_json(e)},
                        {"rounding_points", roundings_json(e)},
                        {"machine", here_json(e.here)},
                        {"targets", targets},
                        {"warnings", e.warnings},
                        {"notes", e.notes}};
  if (e.training) {
    add_training(out, e);
  } else {
    add_generation(out, e);
  }
  return out.dump(2);
}

}  // namespace mantissa::explain
