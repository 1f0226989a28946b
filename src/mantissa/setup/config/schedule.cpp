#include "mantissa/setup/config/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/counted.h"
#include "mantissa/setup/config/stages.h"

namespace mantissa::config {

namespace {

/// Warns of a decaying schedule that has only its last step, which ends at 0.
void check_only_step(const RunConfig& config, Told& told) {
  const ScheduleSection& s = config.schedule;
  if (config.run.steps != 1 || s.warmup_steps != 0 || s.min_lr_ratio != 0) return;
  if (s.name == "constant" || s.name == "rwkv" || s.name == "inverse-sqrt") return;
  told.warnings.push_back(fmt::format(
      "schedule.name = \"{}\": the only step has learning rate 0, at which this schedule ends, so "
      "the run changes no weight. Fix: --set schedule.name=constant, or "
      "--set schedule.warmup_steps=1",
      s.name));
}

/// Keys that only one schedule reads are errors with another.
void check_schedule_keys(const RunConfig& config, const Entries& entries) {
  const ScheduleSection &s = config.schedule, defaults;
  const auto only = [&](std::string_view key, std::string_view name, bool set) {
    const Entry* entry = entries.find("schedule", key);
    if (entry == nullptr || !set || s.name == name) return;
    refuse(*entry,
           fmt::format("only schedule.name = \"{}\" reads it; set the name, or remove the key", name));
  };
  only("decay_steps", "wsd", s.decay_steps != defaults.decay_steps);
  only("decay", "wsd", s.decay != defaults.decay);
  only("timescale", "inverse-sqrt", s.timescale != defaults.timescale);
}

}  // namespace

std::int64_t share_of_steps(const RunConfig& config, double share) {
  return static_cast<std::int64_t>(std::ceil(share * static_cast<double>(config.run.steps)));
}

void settle_warmup_ratio(RunConfig& config, const Entries& entries) {
  double& ratio = config.schedule.warmup_ratio;
  if (ratio == 0) return;
  const Entry& entry = *entries.find("schedule", "warmup_ratio");
  if (entries.find("schedule", "warmup_steps") != nullptr)
    refuse(entry, "schedule.warmup_steps is set too; remove one of them");
  if (entries.find("run", "stage") != nullptr)
    refuse(entry, "each [[run.stage]] has its own warm-up; set warmup_steps there");
  config.schedule.warmup_steps = share_of_steps(config, ratio);
  ratio = 0;
}

void settle_schedule(RunConfig& config, const Entries& entries, Told& told) {
  check_schedule_keys(config, entries);
  if (entries.find("run", "stage") != nullptr) return;  // each stage has its own
  std::int64_t& warmup = config.schedule.warmup_steps;
  const std::int64_t steps = config.run.steps;
  check_only_step(config, told);
  if (const std::int64_t decay = config.schedule.decay_steps; decay > steps - std::min(warmup, steps)) {
    told.notes.push_back(fmt::format(
        "{}: schedule.decay_steps = {} is more than the {} after the warm-up, "
        "which decay from its end on",
        entries.where("schedule", "decay_steps"), decay, counted(steps - std::min(warmup, steps), "step")));
  }
  if (warmup <= steps) return;
  // The notes on a DeepSpeed file name its key.
  if (const Entry* entry = entries.find("schedule", "warmup_steps"); entry != nullptr && !entry->deepspeed)
    told.notes.push_back(
        shorter_warmup(fmt::format("{}: schedule.warmup_steps", entry->origin), warmup, "run.steps", steps));
  warmup = steps;
}

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
  if (c.run.steps <= warmup) return text;
  if (schedule.kind == optim::ScheduleKind::constant) return text + ", constant";
  const bool stable = schedule.kind == optim::ScheduleKind::wsd;
  text += stable ? fmt::format(", from step {} on",
                               std::max(schedule.stable_until() - schedule.earlier, warmup) + 1)
                 : ", then";
  return text + fmt::format(" by {} to {:.3g} at step {}", stable ? c.schedule.decay : c.schedule.name,
                            schedule.at(c.run.steps), c.run.steps);
}

}  // namespace mantissa::config
