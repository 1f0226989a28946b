// The gradients of a run's steps beside those of the same steps in f32: what all roundings of a step lost
// together, so that a loss between two observed points cannot hide.
#pragma once

#include <map>
#include <memory>
#include <stop_token>
#include <string>

#include "mantissa/lab/audit/audit.h"
#include "mantissa/lab/audit/routers.h"
#include "mantissa/lab/audit/run.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::lab {

class GradientReference {
 public:
  /// Prepares the same run with every format in f32. If that is not possible, absent() tells why.
  GradientReference(const AuditSource& source, const config::RunConfig& config);

  /// Returns why gradients are not compared, or "".
  const std::string& absent() const { return absent_; }

  /// Computes the gradients of the next step of `trainer` in f32, from its weights before the step. Returns
  /// false if there are none: the step fails in f32 too, or a stop came first.
  bool compute(train::Trainer& trainer, const std::stop_token& stop);
  /// Compares the gradients of the step that `trainer` has completed, which were multiplied by `loss_scale`.
  std::map<std::string, GradientStep> compare(train::Trainer& trainer, double loss_scale) const;
  /// Returns the experts of the tokens of that step in f32, by the scope of their router.
  const std::map<std::string, runtime::Choices>& choices() const { return choices_; }

 private:
  std::map<std::string, runtime::Choices> choices_;
  std::unique_ptr<train::Trainer> f32_;
  std::string absent_;
};

}  // namespace mantissa::lab
