// A model that is run over rows of text, one at a time.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "mantissa/plan/compile.h"
#include "mantissa/runtime/batch.h"
#include "mantissa/runtime/session.h"
#include "mantissa/text/dataset.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::eval {

class RowModel {
 public:
  /// `program` computes `log_prob` of the inputs `ids` and `targets`. `what` begins the message of a loss
  /// that is not finite: "eval: the loss of".
  RowModel(std::shared_ptr<const plan::Program> program, const weights::ModelSource& source,
           const runtime::Device& device, std::string what);

  /// Runs row `r` and returns the sum of the log-probabilities of its targets, each times its weight. Throws
  /// RunStopped where it is not finite, naming the first such value of the plan.
  double run(const text::StepData& rows, std::int64_t r);

  /// A stop ends run() early, with a sum that means nothing.
  void set_stop(const std::stop_token& stop) { session_.set_stop(stop); }

  /// [sequence_length, vocabulary] of the row that ran last, for programs that have this output.
  runtime::Values logits(const text::StepData& rows) const;

 private:
  std::string what_;
  runtime::Session session_;
};

/// The options under which a forward pass over rows of `length` tokens is compiled.
plan::CompileOptions row_options(std::int64_t length);

}  // namespace mantissa::eval
