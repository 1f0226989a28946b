// The number by which the runs of a comparison are judged: the loss, or of rl what the policy earned.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/lab/compare/compare.h"

namespace mantissa::lab {

/// Returns the loss, unless the reference has rewards: then the first of validation_accuracy,
/// validation_reward, accuracy and reward that it and all other runs that did not stop have.
Measure choose_measure(const Comparison& comparison);

/// Returns true if the measure is of held-out prompts.
bool is_held_out(const Measure& measure);

/// A number of one step. NaN if the step has none.
struct StepValue {
  std::int64_t step = 0;
  double value = 0;
};
/// Returns the run's values of the measure, in the order of the steps.
std::vector<StepValue> values_of(const ComparedRun& run, const Measure& measure);

/// Returns the standard error of the difference of two runs' final values, if prompts are random: that of two
/// binomial shares with a common probability, or of two means. A measurement on held-out prompts counts once
/// per prompt, whose answers change little from one measurement to the next; sampled responses once per
/// prompt of the last tenth of the rollouts. Two runs that answer the same prompts differ by less. Null for
/// the loss, and if a run has no number of prompts.
std::optional<double> error_of_gap(const ComparedRun& run, const ComparedRun& reference,
                                   const Measure& measure);

/// Returns the reason why these runs of rl cannot tell policies apart, or "": every reward of every run is
/// the same, so that no response was better than another, or there are fewer than kFewPrompts held-out
/// prompts.
inline constexpr double kFewPrompts = 20;
std::string equal_rewards(std::span<const ComparedRun* const> runs);
std::string few_prompts(std::span<const ComparedRun* const> runs, const Measure& measure);

/// Returns the reason why the held-out rows of the runs are not the same, or "". Under rl it compares the
/// numbers of prompts, too.
std::string other_held_out(const ComparedRun& run, const ComparedRun& reference);

/// Return a value and the magnitude of a difference in words, with its standard error if that is known:
/// "50 %", "0.031 ± 0.004 nats", "a reward of 0.5".
std::string value_text(const Measure& measure, double value);
std::string difference_text(const Measure& measure, double difference,
                            const std::optional<double>& error = {});

/// Returns a sentence that names the measure, or "" if it is the loss.
std::string judged_by(const Measure& measure);

}  // namespace mantissa::lab
