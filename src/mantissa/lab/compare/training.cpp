#include "mantissa/lab/compare/training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "mantissa/core/base/error.h"
#include "mantissa/lab/compare/curves.h"
#include "mantissa/lab/compare/held_out.h"
#include "mantissa/lab/masters.h"
#include "mantissa/lab/median.h"
#include "mantissa/setup/forecast/forecast.h"
#include "mantissa/setup/forecast/native.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/setup/weights/adapted.h"
#include "mantissa/train/run/work.h"
#include "mantissa/train/steps/health_watch.h"

namespace mantissa::lab {
namespace {

/// The masters of the reference, and how far they moved.
struct ReferenceWeights {
  Masters end;
  double moved = 0;
};

std::int64_t steps_of(const PlannedRun& run, std::int64_t most) {
  return most > 0 ? std::min(most, run.config.run.steps) : run.config.run.steps;
}

std::unique_ptr<train::Trainer> trainer_for(const PlannedRun& run, std::int64_t steps) {
  config::RunConfig config = run.config;
  config.log.tensorboard = false;  // no histograms
  if (config.log.health_interval > 0)
    config.log.health_interval = std::min(config.log.health_interval, steps);
  weights::ModelSource model = weights::find_run_model(config);
  run::Work work = run::work_of(config, model, {}, *run.device, nullptr);
  auto trainer =
      std::make_unique<train::Trainer>(work.config, std::move(model), std::move(work.task), *run.device);
  if (config.native_only) {
    for (const programs::RunPart& part : trainer->parts()) forecast::check_native(*part.program, *run.device);
  }
  return trainer;
}

/// Returns the share of all weights whose update was lost. A compensation keeps what rounding takes.
double lost_share(const std::vector<runtime::ParameterHealth>& health, const precision::Policy& policy) {
  double lost = 0, all = 0;
  for (const runtime::ParameterHealth& p : health) {
    if (!policy.compensates(p.name)) lost += p.updates_lost * static_cast<double>(p.elements);
    all += static_cast<double>(p.elements);
  }
  return all > 0 ? lost / all : 0;
}

/// Sets the shares of the roundings of sums over shards that lost values.
void set_reduced(const std::vector<runtime::ParameterHealth>& health, ComparedRun& run) {
  double flushed = 0, saturated = 0, all = 0;
  for (const runtime::ParameterHealth& p : health) {
    if (!p.reduce_flushed || !p.reduce_saturated) continue;
    const auto elements = static_cast<double>(p.elements);
    flushed += *p.reduce_flushed * elements;
    saturated += *p.reduce_saturated * elements;
    all += elements;
  }
  if (all == 0) return;
  run.reduce_flushed = flushed / all;
  run.reduce_saturated = saturated / all;
}

/// Returns a word for what a finding's rounding took.
std::string what_is_lost(const train::HealthFinding& finding) {
  if (finding.kind == "rounded_away") return "updates";
  return finding.pass == "backward" ? "gradients" : "weights";
}

class ComparisonTraining {
 public:
  ComparisonTraining(const PlannedComparison& plan, const OnComparedStep& on_step,
                     const std::stop_token& stop)
      : plan_(plan), on_step_(on_step), stop_(stop) {}

  Comparison operator()() {
    const auto begin = std::chrono::steady_clock::now();
    Comparison result;
    result.title = plan_.title;
    for (const PlannedRun& run : plan_.runs) {
      if (std::optional<ComparedRun> done = next(run)) result.runs.push_back(std::move(*done));
    }
    for (const PlannedRun& run : plan_.reseeded) {
      // A policy that stops does so with any seed, as a rule, and is not compared.
      const bool stopped = run.of >= result.runs.size() || !result.runs[run.of].stopped.empty();
      if (stopped && run.of > 0) {
        ++number_;
        continue;
      }
      if (std::optional<ComparedRun> done = next(run)) result.reseeded.push_back(std::move(*done));
    }
    judge(result);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result;
  }

 private:
  /// Trains the next run. Returns null if the comparison is interrupted.
  std::optional<ComparedRun> next(const PlannedRun& run) {
    ++number_;
    if (stop_.stop_requested()) return std::nullopt;
    ComparedRun result;
    result.name = run.name;
    result.settings = run.settings;
    result.policy = run.config.policy.line();
    result.seed = run.config.run.seed;
    result.of = run.of;
    result.held_out = held_out_of(run.config);
    const std::int64_t steps = steps_of(run, plan_.steps);
    std::unique_ptr<train::Trainer> trainer;
    try {
      trainer = trainer_for(run, steps);
    } catch (const FileError& e) {
      // Files that another run has read say nothing about the settings of this one.
      const config::RunConfig& first = plan_.runs.front().config;
      if (number_ == 1 || (run.config.data == first.data && run.config.model == first.model)) throw;
      result.stopped = e.message();
      return result;
    } catch (const ResourceError&) {
      throw;
    } catch (const Error& e) {
      if (number_ == 1) throw;
      result.stopped = e.message();
      return result;
    }
    if (!train(*trainer, steps, result)) return std::nullopt;
    return result;
  }

  /// Returns false if the comparison is interrupted.
  bool train(train::Trainer& trainer, std::int64_t steps, ComparedRun& result) {
    const bool is_reference = result.of == 0 && (number_ == 1 || number_ > std::ssize(plan_.runs));
    const Masters start = is_reference ? copy_masters(trainer) : Masters{};
    train::HealthWatch health(trainer.config().policy);
    std::vector<double> speeds;
    try {
      while (trainer.step() < steps) {
        const std::optional<train::StepReport> r = trainer.advance(stop_);
        if (!r) return false;
        result.steps.push_back({r->step,
                                std::isfinite(r->loss) ? r->loss : std::numeric_limits<double>::quiet_NaN(),
                                r->skipped});
        for (const objective::Metric& m : r->metrics) add_to_curves(result, r->step, m.name, m.value);
        if (r->step > 1 && !r->batch_skipped) speeds.push_back(r->tokens_per_second);
        if (!r->health.empty()) result.updates_lost = lost_share(r->health, trainer.config().policy);
        set_reduced(r->health, result);
        health.see(*r, {trainer.parts()[trainer.part()].stage, trainer.part()});
        tell(result.name, *r, steps);
      }
      if (const std::optional<train::Validation> v = trainer.validate(stop_)) {
        result.validation_loss = v->loss;
        for (const objective::Metric& m : v->metrics)
          add_to_curves(result, trainer.step(), "validation_" + m.name, m.value);
      }
    } catch (const RunStopped& e) {
      result.stopped = e.message();
      result.stopped_at = std::min(trainer.step() + 1, steps);
    }
    if (stop_.stop_requested()) return false;
    result.skipped = trainer.skipped();
    if (const plan::Program& program = trainer.program(); program.shards > 1)
      result.sent_bytes = static_cast<double>(forecast::sent_bytes(program, program.shards));
    result.tokens_per_second = median(std::move(speeds));
    // The process grows with every run: each has the memory that it would need as the first.
    if (number_ == 1) process_bytes_ = trainer.memory().process;
    result.peak_bytes =
        static_cast<double>(trainer.memory().peak() - trainer.memory().process + process_bytes_);
    for (const train::HealthFinding& f : health.findings()) {
      result.findings.push_back(f.warning.text);
      const std::string lost = what_is_lost(f);
      if (std::ranges::find(result.losses, lost) == result.losses.end()) result.losses.push_back(lost);
    }
    measure_weights(trainer, is_reference, start, result);
    return true;
  }

  void tell(std::string_view run, const train::StepReport& r, std::int64_t steps) const {
    const auto runs = static_cast<std::int64_t>(plan_.runs.size() + plan_.reseeded.size());
    if (on_step_) on_step_({run, number_, runs, r.step, steps, r.loss});
  }

  /// Measures the distance from the last run of the reference, which has the same seed.
  void measure_weights(train::Trainer& trainer, bool is_reference, const Masters& start,
                       ComparedRun& result) {
    Masters end = copy_masters(trainer);
    if (is_reference) {
      const double moved = distance(end, start, trainer.device()).value_or(0);
      if (moved > 0) result.weight_distance = 0;
      reference_ = {std::move(end), moved};
      return;
    }
    const std::optional<double> apart = distance(end, reference_.end, trainer.device());
    if (apart && reference_.moved > 0) result.weight_distance = *apart / reference_.moved;
  }

  const PlannedComparison& plan_;
  const OnComparedStep& on_step_;
  const std::stop_token& stop_;
  std::int64_t number_ = 0;        // of the current run, from 1
  std::size_t process_bytes_ = 0;  // before the first run
  ReferenceWeights reference_;
};

}  // namespace

Comparison train_and_compare(const PlannedComparison& plan, const OnComparedStep& on_step,
                             const std::stop_token& stop) {
  return ComparisonTraining(plan, on_step, stop)();
}

}  // namespace mantissa::lab
