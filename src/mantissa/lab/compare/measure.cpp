#include "mantissa/lab/compare/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "mantissa/base/quantities.h"

namespace mantissa::lab {
namespace {

struct Named {
  const char* name;
  const char* words;
  bool is_share;
};
constexpr std::array kOnline = {
    Named{"validation_accuracy", "the share of right answers to held-out prompts", true},
    Named{"validation_reward", "the mean reward of the answers to held-out prompts", false},
    Named{"accuracy", "the share of right answers among the sampled responses", true},
    Named{"reward", "the mean reward of the sampled responses", false}};

bool has(const ComparedRun& run, const std::string& metric) {
  const auto curve = run.curves.find(metric);
  return curve != run.curves.end() && !curve->second.values.empty();
}

constexpr std::string_view kHeldOut = "validation_";

std::string prefix_of(const Measure& measure) {
  return measure.name.starts_with(kHeldOut) ? std::string(kHeldOut) : "";
}

/// Returns the number of prompts behind the final value, or 0 if it is not known.
double prompts_of(const ComparedRun& run, const Measure& measure) {
  const std::string name = prefix_of(measure) + "prompts";
  if (!measure.online || !has(run, name)) return 0;
  const std::vector<double>& all = run.curves.at(name).values;
  if (measure.name.starts_with(kHeldOut)) return all.back();
  const std::size_t last = (all.size() + 9) / 10;
  return std::accumulate(all.end() - static_cast<std::ptrdiff_t>(last), all.end(), 0.0);
}

}  // namespace

Measure choose_measure(const Comparison& c) {
  if (c.runs.empty() || !has(c.runs.front(), "reward")) return {};
  for (const Named& measure : kOnline) {
    const auto fits = [&](const ComparedRun& run) { return !run.stopped.empty() || has(run, measure.name); };
    if (has(c.runs.front(), measure.name) && std::ranges::all_of(c.runs, fits) &&
        std::ranges::all_of(c.reseeded, fits))
      return {measure.name, measure.words, true, measure.is_share};
  }
  return {};
}

std::vector<StepValue> values_of(const ComparedRun& run, const Measure& measure) {
  std::vector<StepValue> all;
  if (!measure.online) {
    for (const ComparedStep& s : run.steps) all.push_back({s.step, s.loss});
    return all;
  }
  const auto found = run.curves.find(measure.name);
  if (found == run.curves.end()) return all;
  for (std::size_t i = 0; i < found->second.values.size(); ++i)
    all.push_back({found->second.steps[i], found->second.values[i]});
  return all;
}

std::optional<double> error_of_gap(const ComparedRun& run, const ComparedRun& reference,
                                   const Measure& measure) {
  const double n = prompts_of(run, measure), m = prompts_of(reference, measure);
  if (!(n > 0 && m > 0) || !run.final_value || !reference.final_value) return std::nullopt;
  if (measure.is_share) {
    const double p = std::clamp((n * *run.final_value + m * *reference.final_value) / (n + m), 0.0, 1.0);
    return std::sqrt(p * (1 - p) * (1 / n + 1 / m));
  }
  const std::string name = prefix_of(measure) + "rewards_std";
  if (!has(run, name) || !has(reference, name)) return std::nullopt;
  const double a = run.curves.at(name).values.back(), b = reference.curves.at(name).values.back();
  return std::sqrt(a * a / n + b * b / m);
}

std::string value_text(const Measure& measure, double value) {
  if (!measure.online) return fmt::format("{:.4f}", value);
  return measure.is_share ? percent_text(value) : fmt::format("{:.4g}", value);
}

std::string difference_text(const Measure& measure, double difference) {
  const double size = std::abs(difference);
  if (!measure.online) return fmt::format("{:.2g} nats", size);
  if (!measure.is_share) return fmt::format("a reward of {:.2g}", size);
  const double points = 100 * size;
  return points < 9.95 ? fmt::format("{:.2g} points of accuracy", points)
                       : fmt::format("{:.0f} points of accuracy", points);
}

std::string judged_by(const Measure& measure) {
  if (!measure.online) return "";
  return fmt::format("Judged by {}, not by the loss, whose advantages are relative to each rollout.",
                     measure.words);
}

}  // namespace mantissa::lab
