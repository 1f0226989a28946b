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
  if (name == "rwkv") return ScheduleKind::rwkv;
  throw ConfigError("unknown schedule.name \"{}\"; one of cosine, linear, constant, rwkv", name);
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

double Schedule::at(std::int64_t update) const {
  if (kind == ScheduleKind::rwkv) return rwkv_at(update);
  if (update <= warmup_steps) return lr * static_cast<double>(update) / static_cast<double>(warmup_steps);
  if (kind == ScheduleKind::constant) return lr;
  const double span = static_cast<double>(std::max<std::int64_t>(1, steps - warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(earlier + update - warmup_steps) / span);
  const double left =
      kind == ScheduleKind::linear ? 1.0 - progress : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return lr * (min_lr_ratio + (1.0 - min_lr_ratio) * left);
}

}  // namespace mantissa::optim
