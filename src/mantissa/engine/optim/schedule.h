// Learning-rate schedules over applied updates.
#pragma once

#include <cstdint>
#include <string_view>

namespace mantissa::optim {

enum class ScheduleKind : std::uint8_t { constant, linear, cosine, rwkv };

/// Throws ConfigError with the nearest valid name.
ScheduleKind parse_schedule(std::string_view name);

/// The learning rate of applied update s (from 1): lr·s/W up to W = warmup_steps, then the schedule at
/// progress (s − W)/(steps − W), which reaches min_lr_ratio·lr at the last step.
///
/// `rwkv` is RWKV-LM's trainer.py, which counts updates from 0. With t = s − 1 and r = min_lr_ratio the rate
/// is lr·((0.5 + r/2) + (0.5 − r/2)·cos(π·p)) at progress p = (t − W)/(steps − W), at least 0, and is
/// multiplied by 0.01 + 0.99·t/W as long as t < W.
///
/// A run that continues another has a warm-up of its own, and the progress of both: `earlier` updates count
/// as those of `steps` that are done.
struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 3e-4;
  double min_lr_ratio = 0.1;
  std::int64_t warmup_steps = 0;
  std::int64_t steps = 1;    // with the earlier ones
  std::int64_t earlier = 0;  // updates of the run before

  double at(std::int64_t update) const;

 private:
  double rwkv_at(std::int64_t update) const;
};

}  // namespace mantissa::optim
