#include "mantissa/setup/config/schedule.h"

#include <fmt/format.h>

#include "mantissa/core/base/counted.h"

namespace mantissa::config {

optim::Schedule schedule_of(const RunConfig& c) {
  return {optim::parse_schedule(c.schedule.name),
          c.optimizer.lr,
          c.schedule.min_lr_ratio,
          c.schedule.warmup_steps,
          c.run.earlier_steps + c.run.steps,
          c.run.earlier_steps,
          c.schedule.decay_steps,
          optim::parse_decay(c.schedule.decay),
          c.schedule.timescale};
}

std::string schedule_text(const RunConfig& c) {
  const optim::Schedule schedule = schedule_of(c);
  const std::int64_t warmup = schedule.warmup_steps;
  std::string text = fmt::format("{:.3g}", c.optimizer.lr);
  if (warmup > 0) text += fmt::format(" after {} of warm-up", counted(warmup, "step"));
  if (schedule.kind == optim::ScheduleKind::constant || c.run.steps <= warmup) return text + ", constant";
  std::string course = c.schedule.name;
  if (schedule.kind == optim::ScheduleKind::wsd) {
    text += fmt::format(", from step {} on", schedule.stable_until() - schedule.earlier + 1);
    course = c.schedule.decay;
  }
  return text + fmt::format("{} by {} to {:.3g} at step {}",
                            schedule.kind == optim::ScheduleKind::wsd ? "" : ", then", course,
                            schedule.at(c.run.steps), c.run.steps);
}

}  // namespace mantissa::config
