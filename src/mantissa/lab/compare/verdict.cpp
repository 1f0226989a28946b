// Gaps, noise and verdicts of a comparison.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/base/quantities.h"
#include "mantissa/lab/compare/compare.h"
#include "mantissa/lab/compare/measure.h"

namespace mantissa::lab {
namespace {

/// Returns the last tenth of `all`, at least one element unless it is empty.
template <class T>
std::span<const T> last_tenth(const std::vector<T>& all) {
  return std::span(all).last((all.size() + 9) / 10);
}

/// Returns value − reference at the common steps.
std::vector<StepDifference> differences_of(const std::vector<StepValue>& values,
                                           const std::vector<StepValue>& reference) {
  std::vector<StepDifference> all;
  auto other = reference.begin();
  for (const StepValue& v : values) {
    while (other != reference.end() && other->step < v.step) ++other;
    if (other == reference.end()) break;
    if (other->step != v.step) continue;
    const bool finite = std::isfinite(v.value) && std::isfinite(other->value);
    all.push_back({v.step, finite ? v.value - other->value : std::numeric_limits<double>::quiet_NaN()});
  }
  return all;
}

/// Returns the mean of the finite values, or null without any.
template <class T>
std::optional<double> mean_of(std::span<const T> values, double T::*member) {
  double sum = 0;
  std::int64_t count = 0;
  for (const T& value : values) {
    if (!std::isfinite(value.*member)) continue;
    sum += value.*member;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

std::string times(double ratio) {
  return ratio < 9.95 ? fmt::format("{:.2g} ×", ratio) : fmt::format("{:.0f} ×", ratio);
}

bool rises(const ComparedRun& run) {
  return !run.steps.empty() && run.final_loss && *run.final_loss > run.steps.front().loss;
}

/// Returns the reason why a run diverged, or "". A loss that rises says nothing about a policy of rl.
std::string divergence(const ComparedRun& run, const ComparedRun& reference, const Measure& measure) {
  for (const ComparedStep& s : last_tenth(run.steps)) {
    if (!std::isfinite(s.loss) && !s.skipped) return fmt::format("the loss of step {} is not finite", s.step);
  }
  if (!run.steps.empty() && !run.final_loss) return "every one of the last steps was skipped";
  if (!measure.online && run.loss_gap.value_or(0) > 0 && rises(run) && !rises(reference)) {
    return fmt::format("the loss ended at {:.4g}, above its first value of {:.4g}", *run.final_loss,
                       run.steps.front().loss);
  }
  return "";
}

std::string stop_text(const ComparedRun& run) {
  if (run.stopped_at == 0) return "did not start: " + run.stopped;
  const std::string place = fmt::format("step {}: ", run.stopped_at);
  const std::string why = run.stopped.starts_with(place) ? run.stopped.substr(place.size()) : run.stopped;
  return fmt::format("stopped at step {}: {}", run.stopped_at, why);
}

/// Returns the largest gap that chance explains: that of another seed, or two standard errors of the gap.
std::optional<double> noise_of(const ComparedRun& run, const std::optional<double>& reseeded) {
  constexpr double kErrors = 2;
  if (!run.gap_error) return reseeded;
  return std::max(reseeded.value_or(0), kErrors * *run.gap_error);
}

void judge_gap(ComparedRun& run, const Measure& measure, const std::optional<double>& noise, bool equal) {
  const double gap = *run.gap;
  if (equal && gap == 0) {
    run.outcome = Outcome::same;
    run.verdict = "the same: every loss is equal";
  } else if (noise && std::abs(gap) <= *noise) {
    run.outcome = Outcome::same;
    run.verdict = "the same within the noise";
  } else if (gap == 0) {
    run.outcome = Outcome::same;
    run.verdict = "the same in the last steps";
  } else {
    run.outcome = (gap > 0) == measure.online ? Outcome::better : Outcome::worse;
    run.verdict = fmt::format("{} by {}", name(run.outcome), difference_text(measure, gap));
    if (noise && *noise > 0) run.verdict += fmt::format(", {} the noise", times(std::abs(gap) / *noise));
  }
}

void judge_run(ComparedRun& run, const Comparison& c) {
  const ComparedRun& reference = c.runs.front();
  const std::vector<StepDifference> all = differences(run, reference);
  const bool equal = !all.empty() && run.steps.size() == reference.steps.size() &&
                     std::ranges::all_of(all, [](const StepDifference& d) { return d.difference == 0; });
  const std::string diverged = divergence(run, reference, c.measure);
  if (!run.stopped.empty()) {
    run.outcome = Outcome::stopped;
    run.verdict = stop_text(run);
  } else if (!diverged.empty()) {
    run.outcome = Outcome::diverged;
    run.verdict = "diverged: " + diverged;
  } else if (run.gap) {
    judge_gap(run, c.measure, noise_of(run, c.noise), equal);
  } else {
    run.verdict = fmt::format("not comparable: the reference has no {} at these steps", c.measure.name);
  }
}

void judge_reference(ComparedRun& reference, const Measure& measure) {
  const std::string diverged = divergence(reference, reference, measure);
  reference.outcome = Outcome::reference;
  reference.verdict = "the reference";
  if (!reference.stopped.empty()) {
    reference.verdict += ", " + stop_text(reference);
  } else if (!diverged.empty()) {
    reference.verdict += ", which diverged: " + diverged;
  }
}

/// Returns the name of a run and, in short, how it differs.
std::string in_short(const ComparedRun& run) {
  switch (run.outcome) {
    case Outcome::worse:
    case Outcome::better:
      return fmt::format("{} ({})", run.name, run.verdict.substr(run.verdict.find("by ")));
    case Outcome::diverged:
      return fmt::format("{} ({})", run.name, run.verdict.substr(run.verdict.find(": ") + 2));
    case Outcome::stopped:
      return run.stopped_at == 0 ? fmt::format("{} (did not start)", run.name)
                                 : fmt::format("{} (at step {})", run.name, run.stopped_at);
    default:
      return run.name;
  }
}

/// Joins the first five; a sentence with more is not read.
std::string joined(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 5;
  const std::size_t shown = std::min(names.size(), kMost);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), "; "));
  if (shown < names.size()) text += fmt::format("; and {} more", names.size() - shown);
  return text;
}

template <class Wanted>
std::string names_of(const Comparison& c, const Wanted& wanted) {
  std::vector<std::string> names;
  for (const ComparedRun& run : c.runs) {
    if (wanted(run)) names.push_back(in_short(run));
  }
  return joined(names);
}

/// Returns the names of the runs in which rounding lost something, with the share of lost updates.
std::string unhealthy(const Comparison& c) {
  std::vector<std::string> names;
  for (const ComparedRun& run : c.runs) {
    if (run.findings.empty()) continue;
    names.push_back(run.updates_lost ? fmt::format("{} ({} of its last updates were lost)", run.name,
                                                   percent_text(*run.updates_lost))
                                     : run.name);
  }
  return joined(names);
}

/// Tells by how much chance in the choice of prompts changes the largest gap, or "".
std::string prompts_text(const Comparison& c) {
  double most = 0;
  for (const ComparedRun& run : c.runs) most = std::max(most, noise_of(run, {}).value_or(0));
  if (most == 0) return "";
  return fmt::format(" Other prompts may change it by up to {}: two standard errors.",
                     difference_text(c.measure, most));
}

std::string noise_text(const Comparison& c) {
  if (c.reseeded.empty()) return " The noise of re-seeding was not measured." + prompts_text(c);
  if (!c.noise)
    return fmt::format(" The re-seeded runs have no {} to compare.", c.measure.name) + prompts_text(c);
  return fmt::format(" Another seed changes that by up to {} ({} re-seeded run{}): this is the noise.",
                     difference_text(c.measure, *c.noise), c.reseeded.size(),
                     c.reseeded.size() == 1 ? "" : "s") +
         prompts_text(c);
}

/// Returns true if the run is not worse than the reference by more than the noise.
bool is_sound(const ComparedRun& run) {
  return run.outcome == Outcome::same || run.outcome == Outcome::better;
}

/// Returns the sound run for which `less` holds against all others, or null.
template <class Less>
const ComparedRun* best_run(const Comparison& c, std::optional<double> ComparedRun::*member,
                            const Less& less) {
  const ComparedRun* best = nullptr;
  for (const ComparedRun& run : c.runs) {
    if (!is_sound(run) || !run.findings.empty() || !(run.*member)) continue;
    if (best == nullptr || less(*(run.*member), *(best->*member))) best = &run;
  }
  return best;
}

/// Tells which sound run is the fastest, and which needs the least memory, if that is more than chance: the
/// re-seeded runs have the work of the reference, so their speed shows how much a busy machine changes it.
std::string savings(const Comparison& c) {
  constexpr double kLeastSpeedup = 1.02, kLeastSaving = 0.99;
  const ComparedRun& reference = c.runs.front();
  std::vector<std::string> parts;
  const ComparedRun* fast = best_run(c, &ComparedRun::tokens_per_second, std::greater<>());
  if (fast != nullptr && reference.tokens_per_second.value_or(0) > 0) {
    double speed = *reference.tokens_per_second;
    for (const ComparedRun& run : c.reseeded) speed = std::max(speed, run.tokens_per_second.value_or(0));
    const double ratio = *fast->tokens_per_second / speed;
    if (ratio > kLeastSpeedup)
      parts.push_back(
          fmt::format("{} is the fastest ({:.2f} × the speed of the reference)", fast->name, ratio));
  }
  const ComparedRun* small = best_run(c, &ComparedRun::peak_bytes, std::less<>());
  if (small != nullptr && reference.peak_bytes.value_or(0) > 0) {
    const double ratio = *small->peak_bytes / *reference.peak_bytes;
    if (ratio < kLeastSaving)
      parts.push_back(
          fmt::format("{} needs the least memory ({:.2f} × that of the reference)", small->name, ratio));
  }
  if (parts.empty()) return "";
  return fmt::format(" Of the runs that did at least as well as the reference, {}.",
                     fmt::join(parts, ", and "));
}

}  // namespace

std::string_view name(Outcome outcome) {
  switch (outcome) {
    case Outcome::reference:
      return "reference";
    case Outcome::same:
      return "same";
    case Outcome::worse:
      return "worse";
    case Outcome::better:
      return "better";
    case Outcome::diverged:
      return "diverged";
    case Outcome::stopped:
      return "stopped";
    case Outcome::unknown:
      break;
  }
  return "unknown";
}

std::vector<StepDifference> differences(const ComparedRun& run, const ComparedRun& reference) {
  return differences_of(values_of(run, {}), values_of(reference, {}));
}

void judge(Comparison& c) {
  if (c.runs.empty()) return;
  const ComparedRun& reference = c.runs.front();
  c.measure = choose_measure(c);
  const std::vector<StepValue> expected = values_of(reference, c.measure);
  const auto measure = [&](ComparedRun& run) {
    run.final_loss = mean_of(last_tenth(run.steps), &ComparedStep::loss);
    const std::vector<StepDifference> all = differences(run, reference);
    run.loss_gap = mean_of(last_tenth(all), &StepDifference::difference);
    const std::vector<StepValue> values = values_of(run, c.measure);
    run.final_value = mean_of(last_tenth(values), &StepValue::value);
    run.gap = mean_of(last_tenth(differences_of(values, expected)), &StepDifference::difference);
    if (&run != &reference) run.gap_error = error_of_gap(run, reference, c.measure);
  };
  std::ranges::for_each(c.runs, measure);
  c.noise.reset();
  for (ComparedRun& run : c.reseeded) {
    measure(run);
    run.outcome = run.stopped.empty() ? Outcome::unknown : Outcome::stopped;
    run.verdict = run.stopped.empty() ? fmt::format("the reference with seed {}", run.seed) : stop_text(run);
    if (run.stopped.empty() && run.gap) c.noise = std::max(c.noise.value_or(0), std::abs(*run.gap));
  }
  judge_reference(c.runs.front(), c.measure);
  for (std::size_t i = 1; i < c.runs.size(); ++i) judge_run(c.runs[i], c);
  const std::string what = c.measure.is_share ? "accuracy" : c.measure.online ? "reward" : "loss";
  c.verdict = reference.final_value
                  ? fmt::format("{} is the reference; its final {} is {}.", reference.name, what,
                                value_text(c.measure, *reference.final_value))
                  : fmt::format("{} is the reference, but has no final {}.", reference.name, what);
  if (c.measure.online) c.verdict += " " + judged_by(c.measure);
  if (!reference.stopped.empty()) {
    c.verdict += fmt::format(" It {}. The differences are those of the steps before.", stop_text(reference));
  }
  c.verdict += noise_text(c);
  const std::pair<Outcome, std::string_view> kParts[] = {
      {Outcome::same, "The same"},     {Outcome::better, "Better"},   {Outcome::worse, "Worse"},
      {Outcome::diverged, "Diverged"}, {Outcome::stopped, "Stopped"}, {Outcome::unknown, "Not comparable"}};
  for (const auto& [outcome, words] : kParts) {
    const auto wanted = [outcome = outcome](const ComparedRun& run) { return run.outcome == outcome; };
    if (const std::string names = names_of(c, wanted); !names.empty())
      c.verdict += fmt::format(" {}: {}.", words, names);
  }
  if (const std::string names = unhealthy(c); !names.empty())
    c.verdict += fmt::format(" Whatever the {}, numeric health has findings for {}.", what, names);
  c.verdict += savings(c);
}

}  // namespace mantissa::lab
