// Several runs side by side: their losses, speed, memory and weights, against the first run as the reference.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::lab {

/// One optimizer step.
struct ComparedStep {
  std::int64_t step = 0;
  double loss = 0;  // NaN if it was not finite or not computed
  bool skipped = false;
};

/// A measurement of the objective over the steps, such as the reward of rl.
struct ComparedCurve {
  std::vector<std::int64_t> steps;
  std::vector<double> values;
};

/// The number by which runs are judged (measure.h).
struct Measure {
  std::string name = "loss";  // in metrics.jsonl
  std::string words = "the loss";
  bool online = false;    // of rl: larger is better
  bool is_share = false;  // of right answers
};

enum class Outcome { reference, same, worse, better, diverged, stopped, unknown };
std::string_view name(Outcome outcome);

struct ComparedRun {
  std::string name;                   // what differs: "bf16-mixed, optimizer.lr=1e-3", or a directory
  std::string policy;                 // the line
  std::vector<std::string> settings;  // that differ from the reference: "optimizer.lr=1e-3"
  std::uint64_t seed = 0;
  std::vector<ComparedStep> steps;                   // in order; of a run directory, those in metrics.jsonl
  std::map<std::string, ComparedCurve> curves = {};  // those of curve_names() that the run has
  std::string stopped;                               // the message with which the run stopped, or ""
  std::int64_t stopped_at = 0;  // the step that failed; 0: the run could not start, or did not stop
  std::int64_t skipped = 0;     // steps
  std::optional<double> validation_loss, tokens_per_second, peak_bytes;
  /// ‖w − w_ref‖ / ‖w_ref − w_0‖: the final masters w, those of the reference, and w_0 before its first step.
  std::optional<double> weight_distance;
  std::optional<double> updates_lost;  // share of all weights, in the last measurement of numeric health
  std::vector<std::string> findings;   // of numeric health, one sentence each

  // Computed by judge().
  std::optional<double> final_loss;  // mean of the last tenth of the steps
  std::optional<double> loss_gap;    // mean difference from the reference over the last tenth of common steps
  std::optional<double> final_value, gap;  // the same of the measure
  std::optional<double> gap_error;         // standard error of that gap by the choice of prompts, of rl
  Outcome outcome = Outcome::unknown;
  std::string verdict;  // in words
};

struct Comparison {
  std::string title;
  std::vector<ComparedRun> runs;      // the first is the reference
  std::vector<ComparedRun> reseeded;  // the reference with other seeds
  double seconds = 0;

  // Computed by judge().
  Measure measure;
  std::optional<double> noise;  // the largest |gap| of `reseeded`; null if there is none
  std::string verdict;          // one paragraph
};

/// Computes gaps, noise and verdicts from the measurements.
void judge(Comparison& comparison);

/// Returns loss − reference loss at the common steps, as pairs of step and difference.
struct StepDifference {
  std::int64_t step = 0;
  double difference = 0;  // NaN if one of the losses is not finite
};
std::vector<StepDifference> differences(const ComparedRun& run, const ComparedRun& reference);

/// Returns the verdict and a table.
std::string to_text(const Comparison& comparison);
/// Returns compare.json (docs/cli.md, "compare").
std::string to_json(const Comparison& comparison);
/// Returns report.html, one page without references to other files.
std::string to_html(const Comparison& comparison);
/// Returns compare.csv: the step, and a column of losses for each run. A missing or non-finite loss is empty.
std::string to_csv(const Comparison& comparison);

}  // namespace mantissa::lab
