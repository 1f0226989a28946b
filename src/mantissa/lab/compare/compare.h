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

/// The mean difference of two policies over seeds (paired.h). Both ran with each of the seeds.
struct PairedGap {
  std::vector<std::uint64_t> seeds;
  std::vector<double> gaps;              // by seed: the mean difference over the last tenth of common steps
  double mean = 0;                       // of the gaps
  std::optional<double> standard_error;  // of the mean; null for one seed
  double degrees_of_freedom = 0;         // of the standard error
  std::optional<double>
      limit;  // chance alone gives a larger |mean| in one of 25 comparisons; null for one seed
};

enum class Outcome {
  reference,
  same,
  worse,
  better,
  diverged,
  stopped,
  uncertain,      // not enough runs to tell
  uninformative,  // no rewards, or too few prompts, to tell policies apart
  unknown
};
std::string_view name(Outcome outcome);

struct ComparedRun {
  std::string name;                   // what differs: "bf16-mixed, optimizer.lr=1e-3", or a directory
  std::string policy;                 // the line
  std::vector<std::string> settings;  // that differ from the reference: "optimizer.lr=1e-3"
  std::uint64_t seed = 0;
  std::size_t of = 0;    // of a re-seeded run: the run of the same policy in Comparison::runs
  std::string held_out;  // where its held-out rows come from: "0.1 of kk (2 to 3 people, seed 1)"; "" unknown
  std::vector<ComparedStep> steps;                   // in order; of a run directory, those in metrics.jsonl
  std::map<std::string, ComparedCurve> curves = {};  // those of curve_names() that the run has
  std::string stopped;                               // the message with which the run stopped, or ""
  std::int64_t stopped_at = 0;  // the step that failed; 0: the run could not start, or did not stop
  std::int64_t skipped = 0;     // steps
  std::optional<double> validation_loss, tokens_per_second, peak_bytes;
  /// ‖w − w_ref‖ / ‖w_ref − w_0‖: the final masters w, those of the reference, and w_0 before its first step.
  std::optional<double> weight_distance;
  std::optional<double> updates_lost;  // share of all weights, in the last measurement of numeric health
  /// Shares of the roundings of sums over shards in that measurement that became zero, or exceeded the range
  /// of `reduce`; null if these sums do not round.
  std::optional<double> reduce_flushed, reduce_saturated;
  std::optional<double> sent_bytes;   // by each of as many ranks as shards, in a step, for gradients
  std::vector<std::string> findings;  // of numeric health, one sentence each
  std::vector<std::string> losses;    // what they lost, each once: "updates", "gradients", "values"

  // Computed by judge().
  std::optional<double> final_loss;  // mean of the last tenth of the steps
  std::optional<double> loss_gap;    // mean difference from the reference over the last tenth of common steps
  std::optional<double> final_value, gap;  // the same of the measure; the gap is that of `paired`
  std::optional<double> mean_value;        // final_value, mean over the seeds of the policy
  std::optional<double> gap_error;         // standard error of that gap by the choice of prompts, of rl
  std::optional<PairedGap> paired;         // of `runs`; null without a common seed
  Outcome outcome = Outcome::unknown;
  std::string verdict;  // in words
};

struct Comparison {
  std::string title;
  std::vector<ComparedRun> runs;      // the first is the reference
  std::vector<ComparedRun> reseeded;  // the same with other seeds, ComparedRun::of
  double seconds = 0;
  bool interrupted = false;      // by a stop: only the runs that had ended are there
  std::string no_distance = {};  // why no run has a weight_distance, or ""

  // Computed by judge().
  Measure measure;
  std::optional<double> noise;  // the largest |gap| of the re-seeded runs of the reference; null without any
  std::string verdict;          // one paragraph
};

/// Computes gaps, their errors and the verdicts from the measurements.
void judge(Comparison& comparison);

/// Returns true if the runs differ only in their seed: that compares no policies.
bool only_seeds_differ(const Comparison& comparison);
/// Returns the run of `runs` and its re-seeded runs.
std::vector<const ComparedRun*> seeds_of(const Comparison& comparison, std::size_t run);

/// Returns loss − reference loss at the common steps, as pairs of step and difference.
struct StepDifference {
  std::int64_t step = 0;
  double difference = 0;  // NaN if one of the losses is not finite
};
std::vector<StepDifference> differences(const ComparedRun& run, const ComparedRun& reference);

/// Returns the verdict and a table.
std::string to_text(const Comparison& comparison);
/// Returns compare.json (docs/cli/compare.md).
std::string to_json(const Comparison& comparison);
/// Returns report.html, one page without references to other files.
std::string to_html(const Comparison& comparison);
/// Returns compare.csv: the step, and a column of losses for each run. A missing or non-finite loss is empty.
std::string to_csv(const Comparison& comparison);

}  // namespace mantissa::lab
