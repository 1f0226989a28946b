// A model that is run over rows of text, one at a time.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "mantissa/plan/compile.h"
#include "mantissa/runtime/batch.h"
#include "mantissa/runtime/executor.h"
#include "mantissa/text/dataset.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::eval {

class RowModel {
 public:
  /// `program` computes `log_prob` of the inputs `ids` and `targets`. `what` begins the message of a loss
  /// that is not finite: "eval: the loss of".
  RowModel(const plan::Program& program, const weights::ModelSource& source, const kernels::Context& ctx,
           std::string what);

  /// Runs row `r` and returns the sum of the log-probabilities of its targets, each times its weight. Throws
  /// RunStopped where it is not finite, naming the first such value of the plan.
  double run(const text::StepData& rows, std::int64_t r);

  /// A stop ends run() early, with a sum that means nothing.
  void set_stop(const std::stop_token& stop) { executor_.stop = stop; }

  Matrix logits() const { return executor_.buffer("logits"); }

 private:
  std::string what_;
  runtime::WeightSet weights_;
  runtime::Executor executor_;
};

/// The options under which a forward pass over rows of `length` tokens is compiled.
plan::CompileOptions row_options(std::int64_t length);

}  // namespace mantissa::eval
