#include "mantissa/train/watch.h"

#include <fmt/format.h>

#include <cmath>

namespace mantissa::train {
namespace {

// A fall of the scale by this factor without a rise gives a warning: the first if one op overflows each time,
// the second otherwise, since a run may still be finding its scale.
constexpr double kFall = 4, kFallOfMany = 64;

}  // namespace

std::vector<Warning> Watch::see(const StepReport& step) {
  std::vector<Warning> said;
  see_scale(step, said);
  see_gradients(step, said);
  return said;
}

void Watch::see_scale(const StepReport& step, std::vector<Warning>& said) {
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
  fall_->cure = step.overflow->cure;
  if (fall_->cure.empty()) fall_->cure = {"--rule", step.overflow->scope + ": compute=f32"};
  fall_->last = step.step;
  if (said_scale_ || fall_->from / fall_->to < (fall_->scope.empty() ? kFallOfMany : kFall)) return;
  said_scale_ = true;
  const std::int64_t steps = fall_->last - fall_->first + 1;
  const std::string how =
      fmt::format("the loss scale fell {:g}x in {} steps", fall_->from / fall_->to, steps);
  if (fall_->scope.empty()) {
    said.push_back({how + ", by several ops", {{{"--resume", "--precision", "bf16-mixed"}}}});
    return;
  }
  Cure cure{fall_->cure};
  cure.arguments.insert(cure.arguments.begin(), "--resume");
  said.push_back({fmt::format("{}, always {}", how, fall_->scope), {std::move(cure)}});
}

void Watch::see_gradients(const StepReport& step, std::vector<Warning>& said) {
  if (step.skipped) return;
  if (step.grad_norm == 0 && !said_zero_) {
    said_zero_ = true;
    const std::string text = fmt::format("step {}: every gradient is 0, so no weight changes; ", step.step);
    if (step.loss_scale) {
      said.push_back({text + "they fell below the smallest number of their format: a new run with a higher "
                             "precision.loss_scale.initial_scale_power keeps them",
                      {{{"--resume", "--precision", "bf16-mixed"}}}});
    } else if (below_f32_) {
      said.push_back({text + "a format below f32 may have flushed them",
                      {{{"--resume", "--precision", "32-true"}, "shows whether it did"}}});
    } else {
      said.push_back({text + "no format is below f32, so the loss does not depend on the weights: check the "
                             "learning rate, and the labels and weights of the data",
                      {}});
    }
  }
  if (!std::isfinite(step.loss) && !said_loss_) {
    said_loss_ = true;
    said.push_back(
        {fmt::format("step {}: the loss is {}, but the gradients are finite", step.step, step.loss),
         {{{"--resume", "--rule", "lm_head: compute=f32"}}}});
  }
}

}  // namespace mantissa::train
