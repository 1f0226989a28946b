// Warnings during a run, each reported once. They offer no cure, since none can be tried while the run goes
// on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::train {

/// Observes the steps of a run in order.
class Watch {
 public:
  /// `below_f32`: the plan has a format below f32.
  explicit Watch(bool below_f32 = true) : below_f32_(below_f32) {}

  /// Returns the warnings after `step`, usually none.
  std::vector<Warning> see(const StepReport& step);

 private:
  void see_scale(const StepReport& step, std::vector<Warning>& said);
  void see_gradients(const StepReport& step, std::vector<Warning>& said);

  struct Fall {  // a fall of the loss scale without a rise in between
    double from = 0, to = 0;
    std::int64_t first = 0, last = 0;  // steps
    std::string scope;                 // the op that overflowed each time, or "" if they differ
  };
  bool below_f32_;
  std::optional<Fall> fall_;
  double scale_ = 0;  // of the last step
  bool said_scale_ = false, said_zero_ = false, said_loss_ = false;
};

}  // namespace mantissa::train
