#include "mantissa/engine/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "mantissa/core/base/error_text.h"

namespace mantissa::optim {

ScheduleKind parse_schedule(std::string_view name) {
  if (name == "constant") return ScheduleKind::constant;
  if (name == "linear") return ScheduleKind::linear;
  if (name == "cosine") return ScheduleKind::cosine;
  if (name == "wsd") return ScheduleKind::wsd;
  if (name == "inverse-sqrt") return ScheduleKind::inverse_sqrt;
  if (name == "rwkv") return ScheduleKind::rwkv;
  throw ConfigError("unknown schedule.name \"{}\"; one of cosine, linear, constant, wsd, inverse-sqrt, rwkv",
                    name);
}

DecayCourse parse_decay(std::string_view name) {
  if (name == "linear") return DecayCourse::linear;
  if (name == "cosine") return DecayCourse::cosine;
  if (name == "1-sqrt") return DecayCourse::one_minus_sqrt;
  throw ConfigError("unknown schedule.decay \"{}\"; one of cosine, linear, 1-sqrt", name);
}

double Schedule::rwkv_at(std::int64_t update) const {
  const std::int64_t t = update - 1;
  const double span = static_cast<double>(std::max<std::int64_t>(1, steps - warmup_steps));
  const double progress = std::clamp(static_cast<double>(earlier + t - warmup_steps) / span, 0.0, 1.0);
  const double rate =
      lr * ((0.5 + min_lr_ratio / 2) + (0.5 - min_lr_ratio / 2) * std::cos(std::numbers::pi * progress));
  if (t >= warmup_steps) return rate;
  return rate * (0.01 + 0.99 * static_cast<double>(t) / static_cast<double>(warmup_steps));
}

std::int64_t Schedule::stable_until() const {
  const std::int64_t after_warmup = std::max<std::int64_t>(1, steps - warmup_steps);
  return steps - std::min(decay_steps > 0 ? decay_steps : (steps + 9) / 10, after_warmup);
}

double Schedule::wsd_left(std::int64_t update) const {
  const std::int64_t begin = stable_until();
  const double length = static_cast<double>(steps - begin);
  const double progress = std::clamp(static_cast<double>(earlier + update - begin) / length, 0.0, 1.0);
  switch (decay) {
    case DecayCourse::linear:
      return 1.0 - progress;
    case DecayCourse::cosine:
      return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    case DecayCourse::one_minus_sqrt:
      break;
  }
  return 1.0 - std::sqrt(progress);
}

double Schedule::inverse_sqrt_at(std::int64_t update) const {
  constexpr std::int64_t kTimescale = 10'000;
  const std::int64_t scale = timescale > 0 ? timescale : warmup_steps > 0 ? warmup_steps : kTimescale;
  const double ratio =
      static_cast<double>(scale) / static_cast<double>(scale + earlier + update - warmup_steps);
  return lr * std::max(min_lr_ratio, std::sqrt(ratio));
}

double Schedule::at(std::int64_t update) const {
  if (kind == ScheduleKind::rwkv) return rwkv_at(update);
  if (update <= warmup_steps) return lr * static_cast<double>(update) / static_cast<double>(warmup_steps);
  if (kind == ScheduleKind::constant) return lr;
  if (kind == ScheduleKind::inverse_sqrt) return inverse_sqrt_at(update);
  if (kind == ScheduleKind::wsd) return lr * (min_lr_ratio + (1.0 - min_lr_ratio) * wsd_left(update));
  const double span = static_cast<double>(std::max<std::int64_t>(1, steps - warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(earlier + update - warmup_steps) / span);
  const double left =
      kind == ScheduleKind::linear ? 1.0 - progress : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return lr * (min_lr_ratio + (1.0 - min_lr_ratio) * left);
}

}  // namespace mantissa::optim
