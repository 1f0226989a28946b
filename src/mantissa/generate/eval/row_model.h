// A model that runs over rows of text, one at a time.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "mantissa/engine/plan/compile.h"
#include "mantissa/engine/runtime/batch.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/rows/dataset.h"

namespace mantissa::eval {

class RowModel {
 public:
  /// `program` has the inputs `ids` and `targets` and the output `log_prob`. `what` begins the message about
  /// a non-finite loss: "eval: the loss of".
  RowModel(std::shared_ptr<const plan::Program> program, const weights::ModelSource& source,
           const runtime::Device& device, std::string what);

  /// Runs row `r` and returns the sum of the log-probabilities of its targets, each times its weight. Throws
  /// RunStopped if it is not finite, with the first such value of the plan.
  double run(const text::StepData& rows, std::int64_t r);

  /// After a stop, run() returns early and its result is meaningless.
  void set_stop(const std::stop_token& stop) { session_.set_stop(stop); }

  /// Returns the logits of the last row, [sequence_length, vocabulary], of a program with this output.
  runtime::Values logits(const text::StepData& rows) const;

 private:
  std::string what_;
  runtime::Session session_;
};

}  // namespace mantissa::eval
