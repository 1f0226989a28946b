// Gaps of a comparison, their errors, and the verdict on each run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/lab/compare/compare.h"
#include "mantissa/lab/compare/measure.h"
#include "mantissa/lab/compare/paired.h"
#include "mantissa/lab/compare/verdict.h"

namespace mantissa::lab {
namespace {

using Runs = std::vector<const ComparedRun*>;

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

bool rises(const ComparedRun& run) {
  return !run.steps.empty() && run.final_loss && *run.final_loss > run.steps.front().loss;
}

/// Returns the reason why a run diverged, or "". A loss that rises says nothing about a policy of rl.
std::string divergence(const ComparedRun& run, const ComparedRun& reference, const Measure& measure) {
  // The losses of skipped steps may be finite, but are of the first weights.
  if (!run.steps.empty() && std::ranges::all_of(run.steps, &ComparedStep::skipped))
    return "every step was skipped";
  for (const ComparedStep& s : last_tenth(run.steps)) {
    if (!std::isfinite(s.loss) && !s.skipped) return fmt::format("the loss of step {} is not finite", s.step);
  }
  if (!run.steps.empty() && !run.final_loss) return "every one of the last steps was skipped";
  const std::optional<double> gap =
      mean_of(last_tenth(differences(run, reference)), &StepDifference::difference);
  if (!measure.online && gap.value_or(0) > 0 && rises(run) && !rises(reference)) {
    return fmt::format("the loss ended at {:.4g}, above its first value of {:.4g}", *run.final_loss,
                       run.steps.front().loss);
  }
  return "";
}

/// A run with a seed, and the run of the reference with the same one.
struct Pair {
  const ComparedRun* run;
  const ComparedRun* reference;
};

/// Returns the runs of a policy and of the reference with equal seeds. A run that stopped with another seed
/// than the first is left out.
std::vector<Pair> pairs_of(const Comparison& c, std::size_t policy) {
  std::vector<Pair> pairs;
  const Runs references = seeds_of(c, 0);
  const auto counts = [](const ComparedRun* run, const ComparedRun* first) {
    return run == first || run->stopped.empty();
  };
  for (const ComparedRun* run : seeds_of(c, policy)) {
    const auto found = std::ranges::find(references, run->seed, &ComparedRun::seed);
    if (found == references.end()) continue;
    if (counts(run, &c.runs[policy]) && counts(*found, &c.runs.front())) pairs.push_back({run, *found});
  }
  return pairs;
}

std::optional<PairedGap> gap_of(const std::vector<Pair>& pairs, const Measure& measure) {
  std::vector<SeedDifferences> all;
  for (const Pair& pair : pairs) {
    all.push_back(
        {pair.run->seed, differences_of(values_of(*pair.run, measure), values_of(*pair.reference, measure))});
  }
  return paired_gap(all);
}

/// Returns the error of the mean gap by the choice of prompts: held-out prompts are common to the seeds,
/// whereas each seed samples its own.
std::optional<double> prompt_error(const std::vector<Pair>& pairs, const Measure& measure) {
  double sum = 0, squares = 0;
  for (const Pair& pair : pairs) {
    const std::optional<double> error = error_of_gap(*pair.run, *pair.reference, measure);
    if (!error) return std::nullopt;
    sum += *error;
    squares += *error * *error;
  }
  if (pairs.empty()) return std::nullopt;
  const auto count = static_cast<double>(pairs.size());
  return is_held_out(measure) ? sum / count : std::sqrt(squares) / count;
}

bool all_equal(const std::vector<Pair>& pairs) {
  return !pairs.empty() && std::ranges::all_of(pairs, [](const Pair& pair) {
    const std::vector<StepDifference> all = differences(*pair.run, *pair.reference);
    return !all.empty() && pair.run->steps.size() == pair.reference->steps.size() &&
           std::ranges::all_of(all, [](const StepDifference& d) { return d.difference == 0; });
  });
}

void set(ComparedRun& run, Outcome outcome, std::string verdict) {
  run.outcome = outcome;
  run.verdict = std::move(verdict);
}

/// Returns "better by 0.03 ± 0.01 nats".
std::string direction_text(const ComparedRun& run, const Measure& measure) {
  const double gap = *run.gap;
  const Outcome outcome = (gap > 0) == measure.online ? Outcome::better : Outcome::worse;
  return gap == 0 ? "no difference in the last steps"
                  : fmt::format("{} by {}", name(outcome), difference_text(measure, gap, error_of(run)));
}

void judge_gap(ComparedRun& run, const Measure& measure) {
  const double size = std::abs(*run.gap);
  if (!run.paired)
    return set(run, Outcome::uncertain, "not enough runs to tell: no seed in common with the reference");
  const std::size_t seeds = run.paired->seeds.size();
  if (seeds < 2) {
    return set(run, Outcome::uncertain,
               fmt::format("not enough runs to tell: {} with one seed", direction_text(run, measure)));
  }
  const double limit = std::max(*run.paired->limit, kPromptErrors * run.gap_error.value_or(0));
  if (size > limit) {
    const Outcome outcome = (*run.gap > 0) == measure.online ? Outcome::better : Outcome::worse;
    return set(run, outcome, direction_text(run, measure));
  }
  if (run.paired->degrees_of_freedom < kLeastDegrees && size > kSame * *error_of(run)) {
    return set(run, Outcome::uncertain,
               fmt::format("not enough runs to tell: {} with {} seeds", direction_text(run, measure), seeds));
  }
  set(run, Outcome::same,
      size == 0 ? "the same in the last steps"
                : fmt::format("the same: {} apart, which may be chance",
                              difference_text(measure, size, error_of(run))));
}

std::string with_seed(const ComparedRun& run, const ComparedRun& first) {
  return &run == &first ? "" : fmt::format(" (seed {})", run.seed);
}

void judge_run(ComparedRun& run, const Comparison& c, std::size_t policy, const std::vector<Pair>& pairs) {
  for (const ComparedRun* each : seeds_of(c, policy)) {
    if (!each->stopped.empty()) return set(run, Outcome::stopped, stop_text(*each) + with_seed(*each, run));
  }
  const auto diverged = [&](const ComparedRun& each, const ComparedRun& reference) {
    const std::string why = divergence(each, reference, c.measure);
    if (!why.empty()) set(run, Outcome::diverged, "diverged: " + why + with_seed(each, run));
    return !why.empty();
  };
  if (pairs.empty() && diverged(run, c.runs.front())) return;
  for (const Pair& pair : pairs) {
    if (diverged(*pair.run, *pair.reference)) return;
  }
  Runs both = seeds_of(c, policy);
  for (const ComparedRun* reference : seeds_of(c, 0)) both.push_back(reference);
  if (c.measure.online) {
    if (const std::string why = equal_rewards(both); !why.empty())
      return set(run, Outcome::uninformative, "not informative: " + why);
  }
  if (run.gap == 0 && all_equal(pairs)) return set(run, Outcome::same, "the same: every loss is equal");
  if (is_held_out(c.measure)) {
    const Pair first = pairs.empty() ? Pair{&run, &c.runs.front()} : pairs.front();
    if (const std::string why = other_held_out(*first.run, *first.reference); !why.empty())
      return set(run, Outcome::unknown, "not comparable: the held-out prompts are others: " + why);
    if (const std::string why = few_prompts(both, c.measure); !why.empty())
      return set(run, Outcome::uninformative, "not informative: " + why);
  }
  if (run.gap) return judge_gap(run, c.measure);
  set(run, Outcome::unknown,
      fmt::format("not comparable: the reference has no {} at these steps", c.measure.name));
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

/// Sets the final values of a run by itself, and its gap from another one.
void measure_run(ComparedRun& run, const ComparedRun& reference, const Measure& measure) {
  run.final_loss = mean_of(last_tenth(run.steps), &ComparedStep::loss);
  run.loss_gap = mean_of(last_tenth(differences(run, reference)), &StepDifference::difference);
  const std::vector<StepValue> values = values_of(run, measure);
  run.final_value = mean_of(last_tenth(values), &StepValue::value);
  run.gap =
      mean_of(last_tenth(differences_of(values, values_of(reference, measure))), &StepDifference::difference);
  run.paired.reset();
  run.gap_error.reset();
}

void judge_reseeded(Comparison& c) {
  c.noise.reset();
  const Runs references = seeds_of(c, 0);
  for (ComparedRun& run : c.reseeded) {
    const ComparedRun* reference = &c.runs.front();
    const auto found = std::ranges::find(references, run.seed, &ComparedRun::seed);
    if (run.of > 0 && found != references.end()) reference = *found;
    measure_run(run, *reference, c.measure);
    run.outcome = run.stopped.empty() ? Outcome::unknown : Outcome::stopped;
    run.verdict = !run.stopped.empty() ? stop_text(run)
                  : run.of == 0        ? fmt::format("the reference with seed {}", run.seed)
                                       : fmt::format("{} with seed {}", c.runs[run.of].name, run.seed);
    if (run.of == 0 && run.stopped.empty() && run.gap)
      c.noise = std::max(c.noise.value_or(0), std::abs(*run.gap));
  }
}

std::optional<double> mean_value(const Comparison& c, std::size_t policy) {
  double sum = 0, count = 0;
  for (const ComparedRun* run : seeds_of(c, policy)) {
    if (!run->final_value || (!run->stopped.empty() && run != &c.runs[policy])) continue;
    sum += *run->final_value;
    count += 1;
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

}  // namespace

std::vector<StepDifference> differences(const ComparedRun& run, const ComparedRun& reference) {
  return differences_of(values_of(run, {}), values_of(reference, {}));
}

std::vector<const ComparedRun*> seeds_of(const Comparison& c, std::size_t run) {
  Runs all = {&c.runs[run]};
  for (const ComparedRun& other : c.reseeded) {
    if (other.of == run) all.push_back(&other);
  }
  return all;
}

bool only_seeds_differ(const Comparison& c) {
  return c.runs.size() == 1 && !c.reseeded.empty();
}

void judge(Comparison& c) {
  if (c.runs.empty()) return;
  c.measure = choose_measure(c);
  for (ComparedRun& run : c.runs) measure_run(run, c.runs.front(), c.measure);
  judge_reseeded(c);
  judge_reference(c.runs.front(), c.measure);
  for (std::size_t i = 0; i < c.runs.size(); ++i) c.runs[i].mean_value = mean_value(c, i);
  for (std::size_t i = 1; i < c.runs.size(); ++i) {
    ComparedRun& run = c.runs[i];
    const std::vector<Pair> pairs = pairs_of(c, i);
    run.paired = gap_of(pairs, c.measure);
    run.gap_error = prompt_error(pairs, c.measure);
    if (run.paired) run.gap = run.paired->mean;
    if (const std::optional<PairedGap> losses = gap_of(pairs, {})) run.loss_gap = losses->mean;
    judge_run(run, c, i, pairs);
  }
  c.verdict = verdict_of(c);
}

}  // namespace mantissa::lab
