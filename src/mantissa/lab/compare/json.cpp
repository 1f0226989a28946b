// A comparison as JSON and as CSV.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "mantissa/lab/compare/compare.h"
#include "mantissa/lab/compare/verdict.h"

namespace mantissa::lab {
namespace {

using nlohmann::ordered_json;

ordered_json finite_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? ordered_json(*value) : ordered_json();
}

ordered_json whole_or_null(const std::optional<double>& value) {
  const bool fits = value && std::abs(*value) <= 0x1p53;
  return fits ? ordered_json(static_cast<std::int64_t>(*value)) : ordered_json();
}

/// Returns the gaps by seed and their error, or null.
ordered_json json_of(const std::optional<PairedGap>& paired) {
  if (!paired) return {};
  return {{"seeds", paired->seeds},
          {"gaps", paired->gaps},
          {"standard_error", finite_or_null(paired->standard_error)},
          {"degrees_of_freedom", finite_or_null(paired->degrees_of_freedom)},
          {"limit", finite_or_null(paired->limit)}};
}

ordered_json json_of(const ComparedRun& run, const std::optional<double>& noise) {
  ordered_json steps = ordered_json::array(), losses = ordered_json::array();
  for (const ComparedStep& s : run.steps) {
    steps.push_back(s.step);
    losses.push_back(finite_or_null(s.loss));
  }
  ordered_json curves = ordered_json::object();
  for (const auto& [metric, curve] : run.curves)
    curves[metric] = {{"steps", curve.steps}, {"values", curve.values}};
  return {{"name", run.name},
          {"policy", run.policy},
          {"settings", run.settings},
          {"seed", run.seed},
          {"verdict", run.verdict},
          {"outcome", name(run.outcome)},
          {"final_loss", finite_or_null(run.final_loss)},
          {"loss_gap", finite_or_null(run.loss_gap)},
          {"final_value", finite_or_null(run.final_value)},
          {"gap", finite_or_null(run.gap)},
          {"noise", finite_or_null(noise)},
          {"gap_error", finite_or_null(run.gap_error)},
          {"mean_value", finite_or_null(run.mean_value)},
          {"paired", json_of(run.paired)},
          {"run", run.of},
          {"validation_loss", finite_or_null(run.validation_loss)},
          {"tokens_per_second", finite_or_null(run.tokens_per_second)},
          {"peak_bytes", whole_or_null(run.peak_bytes)},
          {"skipped", run.skipped},
          {"stopped", run.stopped.empty() ? ordered_json() : ordered_json(run.stopped)},
          {"weight_distance", finite_or_null(run.weight_distance)},
          {"updates_lost", finite_or_null(run.updates_lost)},
          {"reduce_flushed", finite_or_null(run.reduce_flushed)},
          {"reduce_saturated", finite_or_null(run.reduce_saturated)},
          {"sent_bytes", whole_or_null(run.sent_bytes)},
          {"findings", run.findings},
          {"steps", std::move(steps)},
          {"losses", std::move(losses)},
          {"curves", std::move(curves)}};
}

/// Returns a field of a CSV file (RFC 4180). Line breaks, which no name needs, become spaces.
std::string csv_field(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string to_json(const Comparison& c) {
  ordered_json runs = ordered_json::array(), reseeded = ordered_json::array();
  for (std::size_t i = 0; i < c.runs.size(); ++i) {
    runs.push_back(json_of(c.runs[i], c.noise));
    runs.back()["run"] = i;
  }
  for (const ComparedRun& run : c.reseeded) reseeded.push_back(json_of(run, c.noise));
  const ordered_json json = {
      {"title", c.title},
      {"headline", headline_of(c)},
      {"verdict", c.verdict},
      {"measure", c.measure.name},
      {"noise", finite_or_null(c.noise)},
      {"runs", std::move(runs)},
      {"reseeded", std::move(reseeded)},
      {"no_distance", c.no_distance.empty() ? ordered_json() : ordered_json(c.no_distance)},
      {"seconds", c.seconds}};
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

std::string to_csv(const Comparison& c) {
  std::vector<const ComparedRun*> runs;
  std::set<std::int64_t> steps;
  std::string text = "step";
  for (const std::vector<ComparedRun>* group : {&c.runs, &c.reseeded}) {
    for (const ComparedRun& run : *group) {
      runs.push_back(&run);
      text += "," + csv_field(run.name);
      for (const ComparedStep& s : run.steps) steps.insert(s.step);
    }
  }
  text += "\n";
  std::vector<std::size_t> next(runs.size());
  for (const std::int64_t step : steps) {
    text += fmt::format("{}", step);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      text += ",";
      const std::vector<ComparedStep>& own = runs[i]->steps;
      if (next[i] == own.size() || own[next[i]].step != step) continue;
      if (std::isfinite(own[next[i]].loss)) text += fmt::format("{}", own[next[i]].loss);
      ++next[i];
    }
    text += "\n";
  }
  return text;
}

}  // namespace mantissa::lab
