// What a run tells of its steps: the stage that begins, the time left, warnings, and findings at the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "mantissa/train/explain/explained.h"
#include "mantissa/train/run/run.h"
#include "mantissa/train/steps/health_watch.h"
#include "mantissa/train/steps/trainer.h"
#include "mantissa/train/steps/watch.h"

namespace mantissa::run {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start);

class Progress {
 public:
  /// Both must outlive this object.
  Progress(const train::Trainer& trainer, const Events& events);

  /// `stages` are those of the plan; without any, all steps are alike.
  void set_stages(std::vector<explain::StagePlan> stages) { stages_ = std::move(stages); }

  /// Notes the stage of the next step if it begins one, or if it is the `first` of this call.
  void tell_stage(bool first) const;

  /// Reports a step, with the time left and its warnings. `done` is the number of steps since `start`.
  void tell_step(const train::StepReport& step, Clock::time_point start, std::int64_t done);

  /// Returns what roundings lost over all steps. `whole`: the run did not continue from a state.
  std::vector<Warning> findings(bool whole);

 private:
  double forecast(std::int64_t first, std::int64_t last) const;
  void see_gradient(const train::StepReport& step);

  const train::Trainer& trainer_;
  const config::RunConfig& config_;
  const Events& events_;
  train::Watch watch_;
  train::HealthWatch health_;
  std::vector<explain::StagePlan> stages_;
  bool had_gradient_ = false;  // of the objective, that is not 0
  bool equal_rewards_ = false;
};

}  // namespace mantissa::run
