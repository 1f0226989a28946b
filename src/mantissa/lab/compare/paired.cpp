#include "mantissa/lab/compare/paired.h"

#include <algorithm>
#include <cmath>

#include "mantissa/lab/compare/student.h"

namespace mantissa::lab {
namespace {

constexpr std::size_t kMostWindows = 6;  // tenths of the steps, counted from the end

/// The finite differences of a range of steps.
struct Window {
  double mean = 0;
  double variance = 0;  // of one step
  double count = 0;
};

Window window_of(std::span<const StepDifference> steps) {
  Window w;
  for (const StepDifference& s : steps) {
    if (!std::isfinite(s.difference)) continue;
    w.mean += s.difference;
    w.count += 1;
  }
  if (w.count > 0) w.mean /= w.count;
  for (const StepDifference& s : steps) {
    if (std::isfinite(s.difference)) w.variance += (s.difference - w.mean) * (s.difference - w.mean);
  }
  if (w.count > 1) w.variance /= w.count - 1;
  return w;
}

/// Returns the windows of a run from the last one on, of which the first always exists.
std::vector<Window> windows_of(std::span<const StepDifference> steps) {
  const std::size_t length = (steps.size() + 9) / 10;
  const std::size_t count = std::max<std::size_t>(1, std::min(kMostWindows, steps.size() * 6 / 10 / length));
  std::vector<Window> windows;
  for (std::size_t w = 0; w < count; ++w)
    windows.push_back(window_of(steps.subspan(steps.size() - (w + 1) * length, length)));
  return windows;
}

/// The mean differences of all seeds in a window, without their mean.
struct Spread {
  std::vector<double> deviations;  // by seed
  double squares = 0;              // their sum
  double independent = 0;          // the variance of a mean difference if steps were independent
};

Spread spread_of(const std::vector<std::vector<Window>>& runs, std::size_t w) {
  Spread spread;
  double mean = 0;
  const auto seeds = static_cast<double>(runs.size());
  for (const std::vector<Window>& run : runs) mean += run[w].mean / seeds;
  for (const std::vector<Window>& run : runs) {
    spread.deviations.push_back(run[w].mean - mean);
    spread.squares += spread.deviations.back() * spread.deviations.back();
    if (run[w].count > 0) spread.independent += run[w].variance / run[w].count / seeds;
  }
  return spread;
}

/// Returns Σ ρ² / W over all pairs of the W windows, from deviations in units of the independent error. The
/// square of an estimated correlation is too large by about its own variance, which is subtracted, except of
/// two seeds, from which the correlation is hardly known.
double correlation_sum(const std::vector<Spread>& windows, double seeds) {
  const auto count = static_cast<double>(windows.size());
  const auto product = [](const Spread& a, const Spread& b) {
    double sum = 0;
    for (std::size_t k = 0; k < a.deviations.size(); ++k) sum += a.deviations[k] * b.deviations[k];
    return sum / std::sqrt(a.independent * b.independent);
  };
  double variance = 0;
  for (const Spread& w : windows) variance += product(w, w) / ((seeds - 1) * count);
  double sum = 1;
  for (std::size_t lag = 1; lag < windows.size(); ++lag) {
    const double degrees = (seeds - 1) * (count - static_cast<double>(lag));
    double covariance = 0;
    for (std::size_t w = 0; w + lag < windows.size(); ++w)
      covariance += product(windows[w], windows[w + lag]) / degrees;
    const double square = std::min(1.0, std::pow(covariance / variance, 2));
    const double unbiased =
        seeds > 2 && degrees > 1 ? std::max(0.0, (square * degrees - 1) / (degrees - 1)) : square;
    sum += 2 * (1 - static_cast<double>(lag) / count) * unbiased;
  }
  return sum;
}

/// Sets the standard error from the windows whose spread is known.
void set_error(PairedGap& gap, const std::vector<std::vector<Window>>& runs) {
  const auto seeds = static_cast<double>(runs.size());
  std::size_t common = kMostWindows;
  double steps = 0;  // of the last window, in all runs
  for (const std::vector<Window>& run : runs) {
    common = std::min(common, run.size());
    steps += run.front().count;
  }
  std::vector<Spread> windows;
  for (std::size_t w = 0; w < common; ++w) {
    const bool known =
        std::ranges::all_of(runs, [&](const std::vector<Window>& run) { return run[w].count >= 2; });
    Spread spread = spread_of(runs, w);
    if (!known || !(spread.independent > 0) || !(spread.squares > 0)) break;
    windows.push_back(std::move(spread));
  }
  const Spread last = spread_of(runs, 0);
  gap.degrees_of_freedom = seeds - 1;
  double variance = last.squares / (seeds - 1);
  if (windows.size() > 1) {
    const auto count = static_cast<double>(windows.size());
    double ratio = 0;
    for (const Spread& w : windows) ratio += w.squares / (seeds - 1) / w.independent / count;
    variance = std::max(1.0, ratio) * last.independent;
    const double of_ratio = (seeds - 1) * count / correlation_sum(windows, seeds), of_steps = steps - seeds;
    gap.degrees_of_freedom = std::max(seeds - 1, 1 / (1 / of_ratio + 1 / of_steps));
  }
  gap.standard_error = std::sqrt(variance / seeds);
  gap.limit = *gap.standard_error * student_limit(1 / kComparisonsPerFalseCall, gap.degrees_of_freedom);
}

}  // namespace

std::optional<PairedGap> paired_gap(std::span<const SeedDifferences> pairs) {
  PairedGap gap;
  std::vector<std::vector<Window>> runs;
  for (const SeedDifferences& pair : pairs) {
    if (pair.steps.empty()) continue;
    std::vector<Window> windows = windows_of(pair.steps);
    if (windows.front().count == 0) continue;
    gap.seeds.push_back(pair.seed);
    gap.gaps.push_back(windows.front().mean);
    runs.push_back(std::move(windows));
  }
  if (runs.empty()) return std::nullopt;
  for (const double g : gap.gaps) gap.mean += g / static_cast<double>(gap.gaps.size());
  if (runs.size() > 1) set_error(gap, runs);
  return gap;
}

}  // namespace mantissa::lab
