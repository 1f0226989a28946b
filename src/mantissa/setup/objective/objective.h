// Training objectives: from the outputs of the forward pass to the loss, its gradient with respect to each
// output, and metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/engine/runtime/batch.h"
#include "mantissa/engine/runtime/session.h"

namespace mantissa::objective {

/// Rows of an optimizer step or of a validation that run together.
struct MicroBatch {
  const runtime::Batch& batch;
  std::int64_t first_row = 0;  // index within the step
};

/// Outputs of a pass for each token of a micro-batch.
struct Outputs {
  runtime::Values log_prob;                     // of the token's target; empty if the program has none
  std::optional<runtime::Values> entropy = {};  // of its distribution, if the program has this output
  std::optional<runtime::Values> value = {};    // of a value head, if the program has this output
  std::optional<runtime::Values> balance = {};  // the token's part of the load-balancing loss, likewise
};

/// Memory for the seeds of the backward pass: d loss / d output for each token. Initially zero. Empty if the
/// program does not have the input for them.
struct Seeds {
  std::span<double> log_prob, entropy = {}, value = {}, balance = {};
};

/// Properties of a step that are known before its first micro-batch.
struct Step {
  double total_weight = 0;  // of the tokens with targets
  double loss_scale = 1;    // factor of every seed, but not of the loss
  std::int64_t tokens = 0;  // without padding
};

struct Metric {
  std::string name;
  double value = 0;
};
struct Outcome {
  double loss = 0;
  std::vector<Metric> metrics = {};
};

/// The calls of a step are begin(), then seeds() and observe() for each micro-batch in order, then end().
/// Validation omits seeds().
class Objective {
 public:
  virtual ~Objective() = default;

  /// Returns true if the seeds depend only on the batch. Then a program may compute log-probabilities and
  /// gradients in one pass over the head (CompileOptions::join_head), which changes no bit.
  virtual bool seeds_known() const = 0;

  virtual void begin(const Step& step) = 0;
  /// Writes the seeds. `outputs` are those of the forward pass, or null if seeds_known().
  virtual void seeds(const MicroBatch& micro, const Outputs* outputs, const Seeds& seeds) = 0;
  /// Adds the micro-batch to the loss and the metrics.
  virtual void observe(const MicroBatch& micro, const Outputs& outputs) = 0;
  /// Returns the loss and the metrics of the step.
  virtual Outcome end() = 0;
};

/// Returns the objective of pretraining and of supervised fine-tuning: Σ weight · (−log p) / Σ weight over
/// the targets. Sums are f64: each chunk of 4096 tokens in order, then the chunks in order. With the output
/// "balance" its mean over the tokens is the metric "router_aux_loss", whose gradient is added, with the
/// weight of the program.
std::unique_ptr<Objective> pretraining();

/// Returns the sum of the log-probabilities of those of the tokens [begin, begin + length) of a micro-batch
/// that have a weight, in order.
double answer_log_prob(const MicroBatch& micro, const Outputs& outputs, std::size_t begin,
                       std::size_t length);
/// Returns the mean in f64, of none 0: the sum is that of each chunk of 4096 in order, then of the chunks.
double mean(const std::vector<double>& values);

/// Returns true if the seeds of the objective called `name` (train.objective) depend only on the batch.
bool seeds_known(std::string_view name);

enum class Pass : std::uint8_t { train, evaluate };

/// Runs one micro-batch forward, and backward under Pass::train. `accumulate`: adds weight gradients to those
/// of earlier micro-batches. Incomplete if the session is stopped. Throws InternalError if the objective
/// needs outputs before the backward pass, but the program computes them in that pass.
void run(runtime::Session& session, const MicroBatch& micro, Objective& objective, Pass pass,
         bool accumulate = false);

}  // namespace mantissa::objective
