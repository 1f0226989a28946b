#include "mantissa/lab/compare/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>

#include "mantissa/report/line_chart.h"

namespace mantissa::lab {
namespace {

constexpr std::size_t kLines = 5;    // of a chart, beside the reference: the colours of the style sheet
constexpr double kLogarithmic = 20;  // ratio of the largest loss to the smallest
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

using Runs = std::vector<const ComparedRun*>;

report::Series losses_of(const ComparedRun& run) {
  report::Series series{.name = run.name, .x = {}, .y = {}};
  for (const ComparedStep& s : run.steps) {
    series.x.push_back(static_cast<double>(s.step));
    series.y.push_back(s.loss);
  }
  return series;
}

std::string loss_chart(const ComparedRun& reference, std::span<const ComparedRun* const> runs) {
  report::LineChart chart{.label = "loss by step", .y_name = "loss", .series = {losses_of(reference)}};
  for (const ComparedRun* run : runs) {
    chart.series.push_back(losses_of(*run));
    for (const ComparedStep& s : run->steps) {
      if (s.skipped) chart.marks.push_back({static_cast<double>(s.step), "skipped: " + run->name});
    }
  }
  chart.marks_name = "skipped step";
  chart.height = 280;
  double least = INFINITY, most = 0;
  for (const report::Series& s : chart.series) {
    for (const double y : s.y) {
      if (!std::isfinite(y)) continue;
      least = std::min(least, y);
      most = std::max(most, y);
    }
  }
  if (least > 0 && most > kLogarithmic * least) chart.spacing = report::Spacing::log10;
  return to_html(chart);
}

/// Returns a line at zero, with the band of the largest mean difference of the re-seeded runs at each step.
report::Series noise_band(const Comparison& c) {
  const ComparedRun& reference = c.runs.front();
  report::Series series{.name = reference.name, .x = {}, .y = {}};
  std::map<std::int64_t, double> band;
  for (const ComparedRun& run : c.reseeded) {
    if (!run.stopped.empty()) continue;
    for (const StepDifference& d : trailing_means(differences(run, reference))) {
      if (std::isfinite(d.difference)) band[d.step] = std::max(band[d.step], std::abs(d.difference));
    }
  }
  if (!band.empty()) series.name += ", and the noise";
  for (const ComparedStep& s : reference.steps) {
    series.x.push_back(static_cast<double>(s.step));
    series.y.push_back(0);
    if (band.empty()) continue;
    const auto at = band.find(s.step);
    series.upper.push_back(at == band.end() ? kNone : at->second);
    series.lower.push_back(-series.upper.back());
  }
  return series;
}

std::string difference_chart(const Comparison& c, std::span<const ComparedRun* const> runs) {
  report::LineChart chart{.label = "difference of the loss from the reference, by step",
                          .y_name = "difference in nats",
                          .series = {noise_band(c)}};
  for (const ComparedRun* run : runs) {
    report::Series series{.name = run->name, .x = {}, .y = {}};
    for (const StepDifference& d : trailing_means(differences(*run, c.runs.front()))) {
      series.x.push_back(static_cast<double>(d.step));
      series.y.push_back(d.difference);
    }
    chart.series.push_back(std::move(series));
  }
  chart.height = 280;
  return to_html(chart);
}

/// Appends a figure for each group of runs that has colours of its own.
template <class Chart>
void add_figures(std::string& body, const Runs& runs, const std::string& title, const std::string& reading,
                 const Chart& chart) {
  for (std::size_t first = 0; first == 0 || first < runs.size(); first += kLines) {
    const std::span<const ComparedRun* const> group =
        std::span(runs).subspan(first, std::min(kLines, runs.size() - first));
    const bool several = runs.size() > kLines;
    const std::string part =
        several ? fmt::format("{}, runs {} to {}", title, first + 1, first + group.size()) : title;
    body += to_html(report::Figure{.title = part, .reading = reading, .body = chart(group), .legend = ""});
  }
}

}  // namespace

std::vector<StepDifference> trailing_means(const std::vector<StepDifference>& all) {
  const std::size_t window = (all.size() + 9) / 10;
  std::vector<StepDifference> means;
  for (std::size_t end = 1; end <= all.size(); ++end) {
    double sum = 0;
    std::int64_t count = 0;
    for (std::size_t i = end - std::min(end, window); i < end; ++i) {
      if (!std::isfinite(all[i].difference)) continue;
      sum += all[i].difference;
      ++count;
    }
    means.push_back({all[end - 1].step, count > 0 ? sum / static_cast<double>(count) : kNone});
  }
  return means;
}

report::Section losses_section(const Comparison& c) {
  report::Section section{.id = "losses",
                          .link = "Loss",
                          .heading = "The loss, step by step",
                          .intro = c.measure.online
                                       ? "The loss of a policy is no measure of it: its advantages are "
                                         "relative to each rollout."
                                       : "Lower is better. A line that ends early belongs to a run that "
                                         "stopped.",
                          .body = {}};
  Runs others, steady;
  for (std::size_t i = 1; i < c.runs.size(); ++i) {
    others.push_back(&c.runs[i]);
    if (c.runs[i].outcome != Outcome::diverged && c.runs[i].outcome != Outcome::stopped)
      steady.push_back(&c.runs[i]);
  }
  add_figures(section.body, others, "Loss", "A gap in a line is a step whose loss was not finite.",
              [&](std::span<const ComparedRun* const> group) { return loss_chart(c.runs.front(), group); });
  if (c.measure.online) return section;
  std::string reading =
      "Above zero is worse than the reference. Each point is the mean of a tenth of the steps, so "
      "the last one is the gap.";
  if (c.noise)
    reading += " The band is the noise: a line inside it is as good as the reference with another seed.";
  if (steady.size() < others.size()) reading += " Runs that stopped or diverged are left out.";
  if (!steady.empty())
    add_figures(section.body, steady, "Difference from the reference", reading,
                [&](std::span<const ComparedRun* const> group) { return difference_chart(c, group); });
  return section;
}

}  // namespace mantissa::lab
