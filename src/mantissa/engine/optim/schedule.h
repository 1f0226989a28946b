// Learning-rate schedules over applied updates.
#pragma once

#include <cstdint>
#include <string_view>

namespace mantissa::optim {

enum class ScheduleKind : std::uint8_t { constant, linear, cosine };

/// Throws ConfigError with the nearest valid name.
ScheduleKind parse_schedule(std::string_view name);

/// The learning rate of applied update s (from 1): lr·s/W up to W = warmup_steps, then the schedule at
/// progress (s − W)/(steps − W), which reaches min_lr_ratio·lr at the last step.
struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 3e-4;
  double min_lr_ratio = 0.1;
  std::int64_t warmup_steps = 0;
  std::int64_t steps = 1;

  double at(std::int64_t update) const;
};

}  // namespace mantissa::optim
