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

/// Returns a line at zero, with the band of the largest mean difference of the reference with other seeds at
/// each step.
report::Series noise_band(const Comparison& c) {
  const ComparedRun& reference = c.runs.front();
  report::Series series{.name = reference.name, .x = {}, .y = {}};
  std::map<std::int64_t, double> band;
  for (const ComparedRun* run : seeds_of(c, 0)) {
    if (run == &reference || !run->stopped.empty()) continue;
    for (const StepDifference& d : trailing_means(differences(*run, reference))) {
      if (std::isfinite(d.difference)) band[d.step] = std::max(band[d.step], std::abs(d.difference));
    }
  }
  if (!band.empty()) series.band_name = "the reference with other seeds";
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

/// Returns the means over the seeds of the run's trailing mean differences from the reference with the same
/// seed.
report::Series mean_differences(const Comparison& c, std::size_t policy) {
  report::Series series{.name = c.runs[policy].name, .x = {}, .y = {}};
  std::map<std::int64_t, std::pair<double, double>> sums;  // and their number, by step
  for (const ComparedRun* run : seeds_of(c, policy)) {
    for (const ComparedRun* reference : seeds_of(c, 0)) {
      if (reference->seed != run->seed) continue;
      for (const StepDifference& d : trailing_means(differences(*run, *reference))) {
        auto& [sum, count] = sums[d.step];
        sum += d.difference;
        count += 1;
      }
    }
  }
  for (const auto& [step, sum] : sums) {
    series.x.push_back(static_cast<double>(step));
    series.y.push_back(sum.first / sum.second);
  }
  return series;
}

std::string difference_chart(const Comparison& c, std::span<const std::size_t> runs, bool with_band) {
  report::LineChart chart{.label = "difference of the loss from the reference, by step",
                          .y_name = "difference in nats",
                          .series = {noise_band(c)}};
  if (!with_band) {
    chart.series.front().lower.clear();
    chart.series.front().upper.clear();
    chart.series.front().band_name.clear();
  }
  for (const std::size_t run : runs) chart.series.push_back(mean_differences(c, run));
  chart.height = 280;
  return to_html(chart);
}

/// Returns true if the band of other seeds is so wide that the lines in it could not be told apart.
bool band_hides_lines(const Comparison& c, std::span<const std::size_t> runs) {
  constexpr double kRatio = 10;
  const auto largest = [](const std::vector<double>& values) {
    double most = 0;
    for (const double v : values) most = std::isfinite(v) ? std::max(most, std::abs(v)) : most;
    return most;
  };
  double lines = 0;
  for (const std::size_t run : runs) lines = std::max(lines, largest(mean_differences(c, run).y));
  return largest(noise_band(c).upper) > kRatio * lines;
}

/// Appends a figure for each group of runs that has colours of its own. The groups are of nearly equal size.
template <class Run, class Chart>
void add_figures(std::string& body, const std::vector<Run>& runs, const std::string& title,
                 const std::string& reading, const Chart& chart) {
  const std::size_t groups = std::max<std::size_t>(1, (runs.size() + kLines - 1) / kLines);
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t first = g * runs.size() / groups, end = (g + 1) * runs.size() / groups;
    const std::string part = groups > 1 ? fmt::format("{}, part {} of {}", title, g + 1, groups) : title;
    body += to_html(report::Figure{.title = part,
                                   .reading = reading,
                                   .body = chart(std::span(runs).subspan(first, end - first)),
                                   .legend = ""});
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
                                         "stopped."};
  Runs others;
  std::vector<std::size_t> steady;
  for (std::size_t i = 1; i < c.runs.size(); ++i) {
    others.push_back(&c.runs[i]);
    if (c.runs[i].outcome != Outcome::diverged && c.runs[i].outcome != Outcome::stopped) steady.push_back(i);
  }
  add_figures(section.body, others, "Loss", "A gap in a line is a step whose loss was not finite.",
              [&](std::span<const ComparedRun* const> group) { return loss_chart(c.runs.front(), group); });
  if (c.measure.online) return section;
  const bool with_band = c.noise && !band_hides_lines(c, steady);
  std::string reading =
      "Above zero is worse than the reference with the same seed. Each point is the mean of a tenth of the "
      "steps, and of the seeds, so the last one is the gap.";
  if (with_band) reading += " The band is what other seeds change.";
  if (c.noise && !with_band)
    reading +=
        fmt::format(" Other seeds change the final loss by up to {:.2g}, far beyond this chart.", *c.noise);
  if (steady.size() < others.size()) reading += " Runs that stopped or diverged are left out.";
  if (!steady.empty()) {
    add_figures(section.body, steady, "Difference from the reference", reading,
                [&](std::span<const std::size_t> group) { return difference_chart(c, group, with_band); });
  }
  return section;
}

}  // namespace mantissa::lab
