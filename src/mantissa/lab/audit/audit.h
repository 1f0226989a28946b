// The observations of an audit: the steps of a run under observation, the statistics of its values, and the
// findings.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/binades.h"
#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/engine/plan/rounding_points.h"
#include "mantissa/engine/runtime/health.h"

namespace mantissa::lab {

/// Returns "SCOPE OP PASS"; "SCOPE update" if both have that name.
inline std::string place_text(std::string_view scope, std::string_view op, std::string_view pass) {
  std::string text = std::string(scope) + " " + std::string(op);
  if (op != pass) text += " " + std::string(pass);
  return text;
}

/// One optimizer step.
struct StepPoint {
  std::int64_t step = 0;
  double loss = 0, grad_norm = 0;  // NaN if not finite, or not computed
  double lr = 0;
  std::optional<double> loss_scale{};
  bool skipped = false, batch_skipped = false;
  std::string overflow = {};        // of a skipped step, why
  std::size_t stage = 0, part = 0;  // of the run
};

/// A value in one observed step. Shares are of its elements; errors compare the stored values with the same
/// values before rounding, and are null if the format of the arithmetic stores them exactly.
struct ValueStep {
  std::int64_t step = 0;
  double absmax = 0, absmin = 0;  // of the finite values that are not zero; 0 if there are none
  double mean = 0, rms = 0;
  double zeros = 0, subnormal = 0, saturated = 0, inf = 0, nan = 0;
  std::optional<double> flushed{};     // not zero before rounding, zero after it
  std::optional<double> overflowed{};  // finite before rounding, beyond the format's range after it
  std::optional<double> error_rms{};   // of the rounding, relative to the rms of the values
  std::optional<double>
      error_mean{};  // signed, relative to the rms of the values: a bias if it is not near 0
  std::optional<double> error_inward{};  // the mean decrease of the magnitude, relative to the rms
  std::optional<double> max_ulp{};       // the largest error, in units of the format's last place
  std::optional<double> cancelled{};     // of sums: elements below 1/64 of their largest term
  std::optional<double>
      stuck{};  // of a state that the update keeps: not zero before rounding, but no change after it
  std::optional<double> moving{};          // of such a state: all changes that are not zero before rounding
  std::optional<double> interior_error{};  // of intermediate results in a lowered format, relative to the rms
};

/// One value of the plan, over the observed steps.
struct ValueSeries {
  std::string scope, op, pass;               // "model.layers.3.mlp.down_proj", "matmul", "forward"
  std::string name;                          // of one of several results: "q"; or ""
  Scalar format = Scalar::f32;               // as stored
  Scalar rounded = Scalar::f32;              // to which it is rounded: a term of a sum may be stored in f32
  std::optional<BlockFormat> blocks = {};    // it is rounded to blocks, whose values `format` represents
  WeightFormat served = WeightFormat::none;  // of a weight: it is rounded to this format first
  StateCodes codes = StateCodes::none;       // of a state of the optimizer: it is rounded to these, in blocks
  bool factor = false;  // an operand that a product rounds while it reads it, called `name`
  plan::RoundingKind kind = plan::RoundingKind::result;
  std::string field = {};  // the policy field that decides the format, or "": compute
  bool rounds = false;     // its format does not store every result of the arithmetic
  std::string point =
      {};                 // of a point inside the op: its name ("P and dS"); the values are results of the op
  std::string card = {};  // of partial sums: whose they are ("h100"), or ""
  bool delayed = false;   // its scale is of earlier steps
  bool flushes = false;   // its rounding flushes subnormal numbers
  std::string interior = {};  // intermediate results in a lowered format ("softmax"), or ""
  std::int64_t elements = 0;  // in a step
  std::string decided_by;     // the rule or preset that decided the format
  std::vector<ValueStep> steps;
  Binades binades{};  // of all observed steps, as stored
  Binades before{};   // the same before rounding; empty if the format stores them exactly

  /// Returns "rope q": the op, and the operand or result unless the op's main result has its name.
  std::string op_and_name() const { return name.empty() || name == op ? op : op + " " + name; }
};

/// A parameter's gradient in one observed step, beside that of the same step, with the same weights, in f32.
struct GradientStep {
  std::int64_t step = 0;
  double zeros = 0;     // share of elements that are 0
  double vanished = 0;  // of the elements that are not 0 in f32: those that are 0
  double error = 0;     // rms of the difference, relative to the rms in f32
  double cosine = std::numeric_limits<double>::quiet_NaN();  // of the angle between them; NaN if one is 0
  double rms = 0;                                            // in f32
  double expected = 0;        // the error that rounding the operands of products explains
  std::string coarsest = {};  // the format of those that contribute most to it

  /// Returns the error in units of what operands explain; a limit of 1 / `expected` is an error of 100 %.
  double times_expected() const { return expected > 0 ? error / expected : 0; }
};

/// The choices of a router in one observed step, beside those of the same step, with the same weights, in
/// f32.
struct RouterStep {
  std::int64_t step = 0;
  std::int64_t chosen = 0;   // experts of a token
  std::int64_t tokens = 0;   // that it routed; 0: they were not compared
  std::int64_t changed = 0;  // of them: those with another set of experts than in f32

  double share() const {
    return tokens == 0 ? 0 : static_cast<double>(changed) / static_cast<double>(tokens);
  }
};

/// The router of a layer, step by step.
struct RouterSeries {
  std::string scope;  // "model.layers.0.mlp.gate"
  std::vector<RouterStep> steps;

  /// Returns the sums over the steps.
  RouterStep total() const {
    RouterStep all;
    for (const RouterStep& s : steps) {
      all.chosen = s.chosen;
      all.tokens += s.tokens;
      all.changed += s.changed;
    }
    return all;
  }
};

/// The health of one parameter (engine/runtime/health.h), step by step.
struct ParameterSeries {
  std::string name;
  Scalar master = Scalar::f32;
  std::vector<std::pair<std::int64_t, runtime::ParameterHealth>> steps;
  std::vector<GradientStep> gradient_steps{};
  Binades weights{};    // at the end
  Binades gradients{};  // of the last observed step, unscaled
};

/// Another cure of a problem that works, and what it costs.
struct Alternative {
  Cure cure;
  std::size_t memory = 0;   // of the run, as predicted, in bytes
  double step_seconds = 0;  // of a step of its trial
};

/// A problem, with its evidence.
struct Finding {
  std::string kind;  // "nonfinite", "overflow", "saturation", "underflow", "rounded_away", "bias", …
  std::string scope, op, pass;
  std::int64_t step = 0;                // the first
  std::vector<std::int64_t> rows = {};  // data rows of that batch
  double share = 0;                     // of elements
  std::map<std::string, double> evidence = {};
  std::optional<std::string> rule = {};             // that --rule takes
  std::optional<Cure> cure = {};                    // Cure::tested: it was replayed, and the finding was gone
  std::vector<std::vector<std::string>> more = {};  // arguments of other cures to try
  std::vector<Alternative> alternatives = {};       // to the cure, in order of memory and time
  std::string command = {};                         // the cure as a whole command, if the program knows it
  std::string remark = {};                          // if no cure works: which ones were tried
  std::string text;                                 // one sentence
  double severity = 0;                              // findings are sorted by it, the worst first
  std::string parameters_op =
      {};  // `op` of a finding about several parameters that counts these elements too
};

/// An input of the op whose result was the first that is not finite.
struct InputRange {
  std::string name = {};  // "x", "weight"; or ""
  std::optional<Scalar> format{};
  std::optional<double> absmin{};  // of the finite values that are not zero
  double absmax = 0;               // of the finite values
};

/// The first inf or NaN of the run.
struct FirstNonFinite {
  std::int64_t step = 0;
  std::string scope, op, pass;
  Scalar format = Scalar::f32;  // as stored
  double value = 0;             // before rounding to the format, if known; otherwise inf or NaN
  std::int64_t channel = -1;    // in the last dimension, or −1
  std::vector<InputRange> inputs = {};
  std::vector<std::int64_t> rows = {};  // data rows of that batch
  std::string text = {};                // one sentence with what else is known, or ""
};

struct Audit {
  std::string title;             // "run.toml under bf16-true"
  std::string command;           // that made it
  std::string run_command = {};  // that a cure's arguments are appended to; empty: `command`
  std::string preset, policy;    // "bf16-true", and the whole line
  std::string model;             // "llama 24M"
  std::string verdict;           // one paragraph
  std::string stopped = {};      // the message with which the run stopped, or ""
  std::int64_t stopped_at = 0;   // that step
  std::optional<FirstNonFinite> first_non_finite = {};
  std::int64_t steps = 0, parameters = 0;
  std::size_t memory = 0;              // of the run, as predicted, in bytes
  std::size_t process = 0;             // of it, what the process had before
  std::vector<std::int64_t> observed;  // steps
  std::vector<StepPoint> points;
  std::vector<StepPoint> earlier = {};  // steps of the run before those, from its metrics
  std::vector<ValueSeries> values;      // in the order of the plan
  std::vector<ParameterSeries> weights;
  std::vector<RouterSeries> routers = {};  // in the order of layers; none without experts or a reference
  double median_gradient_error = 0;        // the largest over the steps of the median over the parameters
  double expected_gradient_error = 0;      // the median of what rounding operands explains, in the same step
  std::string no_reference = {};           // why gradients were not compared with those in f32, or ""
  std::int64_t points_of_rounding = 0;     // of the plan, in the parts of the run that were observed
  std::vector<std::string> unobserved = {};  // of these: "SCOPE OP PASS (NAME): why"
  std::vector<std::string> unreached = {};  // parts of the run without an observed step: "steps 13 to 16, …"
  // Passes beside the training step that round, none of which is observed: "the rollouts (38 rounding
  // points)".
  std::vector<std::string> passes = {};
  std::vector<plan::PlanRow> plan;
  std::vector<Finding> findings;  // the worst first; none for a healthy run
  std::map<std::string, double> thresholds;
  std::string uninformative = {};  // why the steps of an rl run had no gradient, or ""
  std::int64_t untried = 0;        // cures that found no time
  bool interrupted = false;        // by a stop
  bool out_of_time = false;        // it ended at AuditOptions::more_seconds
  double seconds = 0;
};

/// Returns the verdict and the findings.
std::string to_text(const Audit& audit);
/// Returns audit.json (docs/cli/audit.md).
std::string to_json(const Audit& audit);
/// Returns report.html, one page without references to other files.
std::string to_html(const Audit& audit);

}  // namespace mantissa::lab
