#include "mantissa/train/run/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/core/base/counted.h"
#include "mantissa/setup/config/stages.h"

namespace mantissa::run {
namespace {

bool is_below_f32(const plan::Program& program) {
  return std::ranges::any_of(program.buffers,
                             [](const plan::Buffer& b) { return !b.integer && bytes_of(b.type) < 4; });
}

}  // namespace

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Progress::Progress(const train::Trainer& trainer, const Events& events)
    : trainer_(trainer),
      config_(trainer.config()),
      events_(events),
      watch_(is_below_f32(trainer.program())),
      health_(config_.policy) {}

void Progress::tell_stage(bool first) const {
  if (config_.run.stages.empty() || !events_.on_note) return;
  const std::size_t number = config::stage_at(config_, trainer_.step());
  const std::int64_t begin = config::first_step(config_, number);
  if (!first && trainer_.step() != begin) return;
  const config::Stage& stage = config_.run.stages[number];
  events_.on_note(fmt::format("stage {} of {}: steps {} to {}, {} of {} tokens{}", number + 1,
                              config_.run.stages.size(), begin + 1, begin + stage.steps,
                              counted(stage.global_batch_size, "sequence"), stage.sequence_length,
                              stage.rope_theta ? fmt::format(", rope_theta {:g}", *stage.rope_theta) : ""));
}

/// Returns the relative time of steps `first` + 1 to `last`: steps of different stages take different times.
double Progress::forecast(std::int64_t first, std::int64_t last) const {
  if (stages_.empty()) return static_cast<double>(last - first);
  double seconds = 0;
  for (const explain::StagePlan& s : stages_) {
    const std::int64_t steps = std::min(last, s.last) - std::max(first, s.first - 1);
    seconds += s.seconds * static_cast<double>(std::max<std::int64_t>(0, steps));
  }
  return seconds;
}

void Progress::tell_step(const train::StepReport& r, Clock::time_point start, std::int64_t done) {
  const std::vector<Warning> warnings = watch_.see(r);
  health_.see(r, {trainer_.parts()[trainer_.part()].stage, trainer_.part()});
  see_gradient(r);
  const double left =
      seconds_since(start) * forecast(r.step, config_.run.steps) / forecast(r.step - done, r.step);
  if (events_.on_step) events_.on_step(r, left);
  for (const Warning& warning : warnings) {
    if (events_.on_warning) events_.on_warning(warning);
  }
}

/// Notes a gradient of the objective. If all rewards are equal, only the divergence from the reference has
/// one, and only because weight decay moved the weights.
void Progress::see_gradient(const train::StepReport& r) {
  const auto equal = std::ranges::find(r.metrics, "equal_reward_share", &objective::Metric::name);
  if (equal != r.metrics.end()) equal_rewards_ = equal->value == 1;  // of this rollout and its later steps
  had_gradient_ = had_gradient_ || (!r.skipped && !equal_rewards_ && r.grad_norm != 0);
}

std::vector<Warning> Progress::findings(bool whole) {
  std::vector<Warning> all;
  for (train::HealthFinding& f : health_.findings()) {
    // No learning rate brings a gradient that the data do not give.
    if (whole && !had_gradient_ && f.kind == "rounded_away") continue;
    // Whether a whole run with the cure is healthy, only that run shows.
    for (Cure& cure : f.warning.cures) cure.effect = "starts over; not tried";
    all.push_back(std::move(f.warning));
  }
  return all;
}

}  // namespace mantissa::run
