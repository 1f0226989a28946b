// What a step of training minimises: from the outputs of the forward pass to the loss, the gradient of the
// loss by each output, and metrics.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/runtime/batch.h"
#include "mantissa/runtime/session.h"

namespace mantissa::objective {

/// Some rows of an optimizer step, or of a validation.
struct MicroBatch {
  const runtime::Batch& batch;
  std::int64_t first_row = 0;  // of the step
};

/// What the forward pass computes for each token of a micro-batch.
struct Outputs {
  runtime::Values log_prob;                     // of the token's target
  std::optional<runtime::Values> entropy = {};  // of its distribution, if the program has this output
  std::optional<runtime::Values> value = {};    // of a value head, likewise
};

/// Where an objective writes d loss / d output for each token: the backward pass starts from these. Zero at
/// first; empty for outputs that the program does not have.
struct Seeds {
  std::span<double> log_prob, entropy, value;
};

/// The whole of a step, known before its first micro-batch.
struct Step {
  double total_weight = 0;  // of the tokens with targets
  double loss_scale = 1;    // multiplies every seed, and not the loss
};

struct Metric {
  std::string name;
  double value = 0;
};
struct Outcome {
  double loss = 0;
  std::vector<Metric> metrics = {};
};

/// An objective sees the micro-batches of a step in order: begin(), then seeds() and observe() for each, then
/// end(). Validation has no seeds.
class Objective {
 public:
  virtual ~Objective() = default;

  /// Whether the seeds depend on the batch alone. Log-probabilities and gradients then come from one pass
  /// over the head (CompileOptions::join_head), and seeds() gets no outputs. Changes no bit.
  virtual bool seeds_known() const = 0;

  virtual void begin(const Step& step) = 0;
  virtual void seeds(const MicroBatch& micro, const Outputs* outputs, const Seeds& seeds) = 0;
  virtual void observe(const MicroBatch& micro, const Outputs& outputs) = 0;
  virtual Outcome end() = 0;
};

/// The mean negative log-probability of the targets, each times its weight. Sums in f64: chunks of 4096
/// tokens in order, then the chunks in order.
std::unique_ptr<Objective> pretraining();

enum class Pass : std::uint8_t { train, evaluate };

/// Runs one micro-batch forward, and backward under Pass::train. `accumulate`: weight gradients are added to
/// those of the micro-batches before. Incomplete if the session is stopped. Throws InternalError if the
/// objective needs outputs before the backward pass and the program computes them during it.
void run(runtime::Session& session, const MicroBatch& micro, Objective& objective, Pass pass,
         bool accumulate = false);

}  // namespace mantissa::objective
