#include "mantissa/train/steps/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace mantissa::train {
namespace {

// A scale that falls from a high start is looking for its value. One that falls without a rise, and is as low
// as this when a step overflows again, loses small gradients.
constexpr double kFall = 4, kLow = 64;

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
  fall_->last = step.step;
  if (said_scale_ || scale_ > kLow || fall_->from / fall_->to < kFall) return;
  said_scale_ = true;
  const std::string where = fall_->scope.empty() ? "by several ops" : "always " + fall_->scope;
  said.push_back(
      {fmt::format("the loss scale fell {:g}x in {} steps, {}, and steps still overflow at {:g}: "
                   "smaller gradients may become zero",
                   fall_->from / fall_->to, fall_->last - fall_->first + 1, where, scale_)});
}

void Watch::see_gradients(const StepReport& step, std::vector<Warning>& said) {
  if (step.skipped) return;
  if (step.grad_norm == 0 && !said_zero_) {
    said_zero_ = true;
    const std::string text = fmt::format("step {}: every gradient is 0, so no weight changes; ", step.step);
    const auto equal = std::ranges::find(step.metrics, "equal_reward_share", &objective::Metric::name);
    const char* why =
        equal != step.metrics.end() && equal->value == 1
            ? "all responses to each prompt have the same reward, so their advantages are 0: give prompts "
              "that the model sometimes answers, or a reward with more values"
        : step.loss_scale ? "they fell below the smallest number of their format: a new run with a higher "
                            "loss scale keeps them (precision.loss_scale.initial_scale_power, or a larger "
                            "constant)"
        : below_f32_
            ? "a format below f32 may have flushed them; a run with --precision 32-true shows whether "
              "it did"
            : "no format is below f32, so the loss does not depend on the weights: check the learning "
              "rate, and the labels and weights of the data";
    said.push_back({text + why});
  }
  if (!std::isfinite(step.loss) && !said_loss_) {
    said_loss_ = true;
    const std::string loss = fmt::format("step {}: the loss is {}", step.step, std::abs(step.loss));
    said.push_back({std::isfinite(step.grad_norm)
                        ? loss + ", but the gradients are finite"
                        : loss + ", and the gradients are not finite: the weights are lost"});
  }
}

}  // namespace mantissa::train
