#include "mantissa/train/watch.h"

#include <fmt/format.h>

#include <cmath>

namespace mantissa::train {
namespace {

// A scale that fell by this factor without rising is worth a word: where it is always one op's fault, and
// where it is not, as it may be while a run finds its first scale.
constexpr double kFall = 4, kFallOfMany = 64;

}  // namespace

std::vector<std::string> Watch::see(const StepReport& step) {
  std::vector<std::string> said;
  see_scale(step, said);
  see_gradients(step, said);
  return said;
}

void Watch::see_scale(const StepReport& step, std::vector<std::string>& said) {
  if (!step.loss_scale) return;
  if (scale_ > 0 && *step.loss_scale > scale_) fall_.reset();
  scale_ = *step.loss_scale;
  if (!step.overflow) return;
  if (!fall_) {
    fall_ = Fall{scale_, scale_, step.step, step.step, step.overflow->scope};
  } else if (fall_->scope != step.overflow->scope) {
    fall_->scope.clear();
  }
  fall_->to = scale_;
  fall_->cure = step.overflow->cure.empty() ? fmt::format("--rule '{}: compute=f32'", step.overflow->scope)
                                            : step.overflow->cure;
  fall_->last = step.step;
  if (said_scale_ || fall_->from / fall_->to < (fall_->scope.empty() ? kFallOfMany : kFall)) return;
  said_scale_ = true;
  const std::int64_t steps = fall_->last - fall_->first + 1;
  const std::string how =
      fmt::format("the loss scale fell {:g}x in {} steps", fall_->from / fall_->to, steps);
  said.push_back(fall_->scope.empty()
                     ? fmt::format("{}, by several ops; to cure: --resume --precision bf16-mixed", how)
                     : fmt::format("{}, always {}; to cure: --resume {}", how, fall_->scope, fall_->cure));
}

void Watch::see_gradients(const StepReport& step, std::vector<std::string>& said) {
  if (step.skipped) return;
  if (step.grad_norm == 0 && !said_zero_) {
    said_zero_ = true;
    said.push_back(fmt::format(
        "step {}: every gradient is 0, so that no weight moves; {}", step.step,
        step.loss_scale ? "they fell below the smallest number of their format: raise "
                          "precision.loss_scale.initial_scale_power, or --precision bf16-mixed"
                        : "a format below f32 may have lost them: --precision 32-true shows whether it did"));
  }
  if (!std::isfinite(step.loss) && !said_loss_) {
    said_loss_ = true;
    said.push_back(
        fmt::format("step {}: the loss is {} and the gradients are finite; --resume --rule 'lm_head: "
                    "compute=f32', or a lower optimizer.lr",
                    step.step, step.loss));
  }
}

}  // namespace mantissa::train
