#include "mantissa/lab/compare/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "mantissa/report/html.h"
#include "mantissa/report/line_chart.h"

namespace mantissa::lab {
namespace {

constexpr std::array kMetrics = {
    CurveMetric{"reward", "Reward", "reward", "Mean over the responses of a rollout.", false, {}},
    CurveMetric{"accuracy", "Right answers", "share", "Share of the sampled responses that are right.", false,
                0, 1},
    CurveMetric{"validation_accuracy", "Right answers to held-out prompts", "share",
                "Share of the greedy responses to the held-out prompts that are right.", false, 0, 1},
    CurveMetric{"validation_reward",
                "Reward of held-out prompts",
                "reward",
                "Mean over the greedy responses to the held-out prompts.",
                false,
                {}},
    CurveMetric{"response_length", "Length of responses", "tokens", "Mean over the responses of a rollout."},
    CurveMetric{"truncated_share", "Truncated responses", "share",
                "Share of responses that reached the largest length. A collapsing policy often ends here.",
                false, 0, 1},
    CurveMetric{
        "entropy", "Entropy", "nats per token",
        "Mean entropy of the distributions that tokens were sampled from. Near zero, all responses to a "
        "prompt are alike."},
    CurveMetric{"kl",
                "Divergence from the reference",
                "nats per token",
                "Estimate of how far the policy has moved from the reference.",
                false,
                {}},
    CurveMetric{"rollout_difference", "Difference between sampling and training", "nats",
                "Largest difference of a token's log-probability between the rollout and the forward pass of "
                "training. It is 0 if both have one precision."},
    CurveMetric{"rollout_kl", "Divergence of training from sampling", "nats per token",
                "Mean estimate over the tokens of a rollout.", true},
    CurveMetric{"rollout_ratio_max", "Largest ratio of training to sampling", "ratio",
                "Of the probabilities of a token. Far above 1, the samples come from another policy.", true},
    CurveMetric{"effective_sample_share", "Effective sample size", "share of the responses",
                "Near 1, the responses count equally after correction; near 0, a few of them count for all.",
                false, 0, 1},
    CurveMetric{"ratio_max", "Largest ratio to the policy before the update", "ratio",
                "Exactly 1 in the first optimizer step on a rollout."}};

constexpr std::size_t kColours = 6;  // of the lines of a chart

using Runs = std::vector<const ComparedRun*>;

/// Returns the runs with the metric.
Runs runs_with(const Comparison& c, std::string_view metric) {
  Runs runs;
  for (const ComparedRun& run : c.runs) {
    if (run.curves.contains(std::string(metric))) runs.push_back(&run);
  }
  return runs;
}

std::string chart_of(std::span<const ComparedRun* const> runs, const CurveMetric& metric) {
  report::LineChart chart{.label = fmt::format("{} by step", metric.title),
                          .y_name = std::string(metric.y_name),
                          .spacing = metric.logarithmic ? report::Spacing::log10 : report::Spacing::linear,
                          .bounds = {metric.least, metric.most},
                          .series = {}};
  for (const ComparedRun* run : runs) {
    const ComparedCurve& curve = run->curves.at(std::string(metric.name));
    report::Series series{.name = run->name, .x = {}, .y = curve.values};
    for (const std::int64_t step : curve.steps) series.x.push_back(static_cast<double>(step));
    chart.series.push_back(std::move(series));
  }
  return to_html(chart);
}

}  // namespace

std::span<const std::string> curve_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"prompts", "validation_prompts", "rewards_std", "validation_rewards_std"};
    for (const CurveMetric& metric : kMetrics) all.emplace_back(metric.name);
    return all;
  }();
  return names;
}

void add_to_curves(ComparedRun& run, std::int64_t step, const std::string& name, double value) {
  if (!std::isfinite(value) || std::ranges::find(curve_names(), name) == curve_names().end()) return;
  ComparedCurve& curve = run.curves[name];
  curve.steps.push_back(step);
  curve.values.push_back(value);
}

report::Section curves_section(const Comparison& c) {
  report::Section section{.id = "rollouts",
                          .link = "Rollouts",
                          .heading = "Rewards and rollouts",
                          .intro =
                              "What the policy earned, and how far the policies of sampling, of training and "
                              "of the reference are apart."};
  for (const CurveMetric& metric : kMetrics) {
    const Runs runs = runs_with(c, metric.name);
    const std::size_t groups = (runs.size() + kColours - 1) / kColours;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t first = g * runs.size() / groups, end = (g + 1) * runs.size() / groups;
      const auto group = std::span(runs).subspan(first, end - first);
      const std::string part = groups > 1 ? fmt::format(", part {} of {}", g + 1, groups) : "";
      section.body += to_html(report::Figure{.title = std::string(metric.title) + part,
                                             .reading = std::string(metric.reading),
                                             .body = chart_of(group, metric),
                                             .legend = {}});
    }
  }
  return section;
}

}  // namespace mantissa::lab
