#include "mantissa/lab/compare/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

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

std::string value_text(const Measure& measure, double value) {
  if (!measure.online) return fmt::format("{:.4f}", value);
  return measure.is_share ? percent_text(value) : fmt::format("{:.4g}", value);
}

std::string difference_text(const Measure& measure, double difference) {
  const double size = std::abs(difference);
  if (!measure.online) return fmt::format("{:.2g} nats", size);
  return measure.is_share ? fmt::format("{:.2g} points of accuracy", 100 * size)
                          : fmt::format("a reward of {:.2g}", size);
}

std::string judged_by(const Measure& measure) {
  if (!measure.online) return "";
  return fmt::format("Judged by {}, not by the loss, whose advantages are relative to each rollout.",
                     measure.words);
}

}  // namespace mantissa::lab
