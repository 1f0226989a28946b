// The number by which the runs of a comparison are judged: the loss, or of rl what the policy earned.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mantissa/lab/compare/compare.h"

namespace mantissa::lab {

/// Returns the loss, unless the reference has rewards: then the first of validation_accuracy,
/// validation_reward, accuracy and reward that it and all other runs that did not stop have.
Measure choose_measure(const Comparison& comparison);

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

/// Return a value and the magnitude of a difference in words: "50 %", "0.031 nats", "a reward of 0.5".
std::string value_text(const Measure& measure, double value);
std::string difference_text(const Measure& measure, double difference);

/// Returns a sentence that names the measure, or "" if it is the loss.
std::string judged_by(const Measure& measure);

}  // namespace mantissa::lab
