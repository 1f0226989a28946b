#include "mantissa/lab/compare/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>

#include "mantissa/core/base/quantities.h"

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
  return is_held_out(measure) ? std::string(kHeldOut) : "";
}

/// Returns the number of prompts behind the final value, or 0 if it is not known.
double prompts_of(const ComparedRun& run, const Measure& measure) {
  const std::string name = prefix_of(measure) + "prompts";
  if (!measure.online || !has(run, name)) return 0;
  const std::vector<double>& all = run.curves.at(name).values;
  if (is_held_out(measure)) return all.back();
  const std::size_t last = (all.size() + 9) / 10;
  return std::accumulate(all.end() - static_cast<std::ptrdiff_t>(last), all.end(), 0.0);
}

}  // namespace

bool is_held_out(const Measure& measure) {
  return measure.name.starts_with(kHeldOut);
}

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

std::string equal_rewards(std::span<const ComparedRun* const> runs) {
  std::optional<double> only;
  for (const ComparedRun* run : runs) {
    if (!has(*run, "reward")) return "";
    const auto spread = run->curves.find("rewards_std");
    if (spread != run->curves.end() &&
        std::ranges::any_of(spread->second.values, [](double v) { return v != 0; }))
      return "";
    for (const double reward : run->curves.at("reward").values) {
      if (reward != only.value_or(reward)) return "";
      only = reward;
    }
  }
  return only ? fmt::format("every reward of every response is {:.4g}", *only) : "";
}

std::string few_prompts(std::span<const ComparedRun* const> runs, const Measure& measure) {
  if (!is_held_out(measure)) return "";
  double least = INFINITY;
  for (const ComparedRun* run : runs) {
    const double prompts = prompts_of(*run, measure);
    if (prompts > 0) least = std::min(least, prompts);
  }
  if (least >= kFewPrompts) return "";
  return fmt::format("only {:.0f} held-out prompt{}, of at least {:.0f}", least, least == 1 ? "" : "s",
                     kFewPrompts);
}

std::string other_held_out(const ComparedRun& run, const ComparedRun& reference) {
  if (!run.held_out.empty() && !reference.held_out.empty() && run.held_out != reference.held_out)
    return fmt::format("{} instead of {}", run.held_out, reference.held_out);
  const std::string prompts = std::string(kHeldOut) + "prompts";
  if (!has(run, prompts) || !has(reference, prompts)) return "";
  const double own = run.curves.at(prompts).values.back(), other = reference.curves.at(prompts).values.back();
  return own == other ? "" : fmt::format("{:.0f} prompts instead of {:.0f}", own, other);
}

std::string value_text(const Measure& measure, double value) {
  if (!measure.online) return fmt::format("{:.4f}", value);
  return measure.is_share ? percent_text(value) : fmt::format("{:.4g}", value);
}

std::string difference_text(const Measure& measure, double difference, const std::optional<double>& error) {
  const double unit = measure.is_share ? 100 : 1;
  const auto number = [&](double v) {
    const double size = unit * std::abs(v);
    return size >= 99.5 ? fmt::format("{:.0f}", size) : fmt::format("{:.2g}", size);
  };
  const std::string text =
      error ? fmt::format("{} ± {}", number(difference), number(*error)) : number(difference);
  if (!measure.online) return text + " nats";
  return measure.is_share ? text + " points of accuracy" : "a reward of " + text;
}

std::string judged_by(const Measure& measure) {
  if (!measure.online) return "";
  return fmt::format("Judged by {}, not by the loss, whose advantages are relative to each rollout.",
                     measure.words);
}

}  // namespace mantissa::lab
