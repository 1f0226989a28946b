// Learning-rate schedules over applied updates.
#pragma once

#include <cstdint>
#include <string_view>

namespace mantissa::optim {

enum class ScheduleKind : std::uint8_t { constant, linear, cosine, wsd, inverse_sqrt, rwkv };

/// The course of the decay that ends a `wsd` schedule.
enum class DecayCourse : std::uint8_t { linear, cosine, one_minus_sqrt };

/// Throws ConfigError with the nearest valid name.
ScheduleKind parse_schedule(std::string_view name);
DecayCourse parse_decay(std::string_view name);

/// The learning rate of applied update s (from 1): lr·s/W up to W = warmup_steps, then the schedule at
/// progress (s − W)/(steps − W), which reaches min_lr_ratio·lr at the last step.
///
/// `wsd` (warm-up, stable, decay) keeps lr until the last D = decay_steps steps, but decays only after the
/// warm-up. With p = (s − (steps − D))/D the share of the decay that is left is 1 − p, (1 + cos(π·p))/2 or
/// 1 − √p. `inverse_sqrt` is lr·√(T/(T + s − W)) with T = timescale, at least min_lr_ratio·lr. Both are
/// those of transformers (get_wsd_schedule, get_inverse_sqrt_schedule), whose step counts the updates before.
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
  std::int64_t steps = 1;        // with the earlier ones
  std::int64_t earlier = 0;      // updates of the run before
  std::int64_t decay_steps = 0;  // 0: a tenth of `steps`, rounded up
  DecayCourse decay = DecayCourse::cosine;
  std::int64_t timescale = 0;  // in updates; 0: warmup_steps, or 10,000 without warm-up

  double at(std::int64_t update) const;
  /// The last update of `wsd` before its decay, with the earlier ones.
  std::int64_t stable_until() const;

 private:
  double rwkv_at(std::int64_t update) const;
  /// The share of the rates between min_lr_ratio·lr and lr that the decay of `wsd` leaves.
  double wsd_left(std::int64_t update) const;
  double inverse_sqrt_at(std::int64_t update) const;
};

}  // namespace mantissa::optim
