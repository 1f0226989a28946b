// The problems that an audit's figures show.
#pragma once

#include <optional>
#include <vector>

#include "mantissa/lab/audit/audit.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::lab {

/// The figures above which a problem is reported. docs/cli/audit.md, states their meaning.
struct Thresholds {
  double overflow = 0;        // share of a value's elements, in any step
  double saturation = 0.01;   // the same
  double clipped = 0.25;      // or any share, if the rms error of the value is above this share of its rms
  double underflow = 0.25;    // the same: not zero before rounding, zero after it
  double vanished = 0.5;      // the same for values in blocks, whose smaller elements become zero by design
  double updates_lost = 0.5;  // of updates that are not zero, over the steps near the highest learning rate
  double bias = 0.25;         // |mean error| / rms error, if that is also significant
  double interior = 2;        // error of intermediate results / error of a bf16 rounding of the result
  double gradient = 1.5;      // error of gradients against f32 / what the policy's operands explain
  double cancellation = 0.5;  // share of sums
  double scale_fall = 64;     // of the loss scale, without a rise in between
  double scale_low = 64;      // and its value then: from a high start, a scale falls to its place
};

/// Returns the findings of the audit's values, weights and steps, the worst first. Equal problems of several
/// layers are one finding, of the worst one.
std::vector<Finding> find_problems(const Audit& audit, const config::RunConfig& config,
                                   std::int64_t vocabulary, const Thresholds& thresholds = {});

/// Returns true if steps were skipped only because the loss scale began too high: it fell, or a hysteresis
/// kept it at the beginning of the run, and the last step was applied, or the scale is still high.
bool scale_searches(const Audit& audit);

/// Returns true if a step changes most matrices by more than a tenth of their largest elements, as far as the
/// learning rate tells.
bool has_large_rate(const Audit& audit);

/// Returns the rule of a cure that holds at `scope`. Without one, the first rule of a tested cure, or null:
/// an untested rule for another place may not concern the finding.
std::optional<std::string> rule_at(const Cure& cure, const std::string& scope);

/// Returns the pattern of "SCOPE: compute=f32" or {match = "SCOPE", …}.
std::string pattern_of_rule(const std::string& rule);

/// Returns the finding of a step that overflowed, skipped or not.
Finding nonfinite_finding(const train::Overflow& overflow, std::int64_t step);

}  // namespace mantissa::lab
