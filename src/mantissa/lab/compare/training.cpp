#include "mantissa/lab/compare/training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/comm/deal.h"
#include "mantissa/lab/compare/curves.h"
#include "mantissa/lab/compare/held_out.h"
#include "mantissa/lab/compare/run_bytes.h"
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
                     const std::stop_token& stop, comm::Communicator& ranks)
      : plan_(plan), on_step_(on_step), stop_(stop), ranks_(ranks) {
    for (const std::vector<PlannedRun>* runs : {&plan.runs, &plan.reseeded}) {
      for (const PlannedRun& run : *runs) all_.push_back(&run);
    }
  }

  Comparison operator()() {
    const auto begin = std::chrono::steady_clock::now();
    result_.title = plan_.title;
    while (next_ < all_.size() && !result_.interrupted) run_round();
    judge(result_);
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(result_);
  }

 private:
  bool is_reseeded(std::size_t run) const { return run >= plan_.runs.size(); }
  bool is_reference(std::size_t run) const { return all_[run]->of == 0 && (run == 0 || is_reseeded(run)); }

  /// Returns true if the run of this policy with the first seed has stopped: it does so with any seed, as a
  /// rule, and is not compared.
  bool has_stopped(std::size_t run) const {
    const std::size_t of = all_[run]->of;
    if (!is_reseeded(run) || of == 0) return false;
    return of < result_.runs.size() && !result_.runs[of].stopped.empty();
  }

  /// Trains the next runs, one on each rank.
  void run_round() {
    std::vector<std::size_t> round;
    std::string inputs;
    for (; next_ < all_.size() && std::ssize(round) < ranks_.size(); ++next_) {
      if (has_stopped(next_)) continue;
      round.push_back(next_);
      inputs += all_[next_]->name + "\n" + all_[next_]->config.to_toml();
    }
    end_.clear();
    const std::vector<comm::Bytes> done = comm::deal(
        &ranks_, std::ssize(round), {inputs}, stop_,
        [&](std::int64_t item, const std::stop_token& stop) -> std::optional<comm::Bytes> {
          const std::optional<ComparedRun> run = trained(round[static_cast<std::size_t>(item)], stop);
          if (!run) return std::nullopt;
          return bytes_of(*run);
        });
    result_.interrupted = done.size() < round.size();
    const std::vector<std::optional<double>> distances =
        distances_of(std::span<const std::size_t>(round).first(done.size()));
    for (std::size_t i = 0; i < done.size(); ++i) {
      ComparedRun run = described(*all_[round[i]]);
      set_measurements(run, done[i]);
      run.weight_distance = distances[i];
      // The process grows with every run: each has the memory that it would need as the first of rank 0.
      if (run.peak_bytes) *run.peak_bytes += static_cast<double>(process_bytes_);
      if (has_stopped(round[i])) continue;  // it ran beside the first
      (is_reseeded(round[i]) ? result_.reseeded : result_.runs).push_back(std::move(run));
    }
  }

  static ComparedRun described(const PlannedRun& run) {
    ComparedRun result;
    result.name = run.name;
    result.settings = run.settings;
    result.policy = run.config.policy.line();
    result.seed = run.config.run.seed;
    result.of = run.of;
    result.held_out = held_out_of(run.config);
    return result;
  }

  /// Trains a run on this rank. Returns null if the comparison is interrupted.
  std::optional<ComparedRun> trained(std::size_t number, const std::stop_token& stop) {
    if (stop.stop_requested()) return std::nullopt;
    const PlannedRun& run = *all_[number];
    ComparedRun result = described(run);
    const std::int64_t steps = steps_of(run, plan_.steps);
    std::unique_ptr<train::Trainer> trainer;
    try {
      trainer = trainer_for(run, steps);
    } catch (const FileError& e) {
      // Files that another run has read say nothing about the settings of this one.
      const config::RunConfig& first = plan_.runs.front().config;
      if (number == 0 || (run.config.data == first.data && run.config.model == first.model)) throw;
      result.stopped = e.message();
      return result;
    } catch (const ResourceError&) {
      throw;
    } catch (const Error& e) {
      if (number == 0) throw;
      result.stopped = e.message();
      return result;
    }
    if (!train(*trainer, number, steps, stop, result)) return std::nullopt;
    return result;
  }

  /// Returns false if the comparison is interrupted.
  bool train(train::Trainer& trainer, std::size_t number, std::int64_t steps, const std::stop_token& stop,
             ComparedRun& result) {
    const Masters start = is_reference(number) ? copy_masters(trainer) : Masters{};
    train::HealthWatch health(trainer.config().policy);
    std::vector<double> speeds;
    try {
      while (trainer.step() < steps) {
        const std::optional<train::StepReport> r = trainer.advance(stop);
        if (!r) return false;
        result.steps.push_back({r->step,
                                std::isfinite(r->loss) ? r->loss : std::numeric_limits<double>::quiet_NaN(),
                                r->skipped});
        for (const objective::Metric& m : r->metrics) add_to_curves(result, r->step, m.name, m.value);
        if (r->step > 1 && !r->batch_skipped) speeds.push_back(r->tokens_per_second);
        if (!r->health.empty()) result.updates_lost = lost_share(r->health, trainer.config().policy);
        set_reduced(r->health, result);
        health.see(*r, {trainer.parts()[trainer.part()].stage, trainer.part()});
        tell(number, *r, steps);
      }
      if (const std::optional<train::Validation> v = trainer.validate(stop)) {
        result.validation_loss = v->loss;
        for (const objective::Metric& m : v->metrics)
          add_to_curves(result, trainer.step(), "validation_" + m.name, m.value);
      }
    } catch (const RunStopped& e) {
      result.stopped = e.message();
      result.stopped_at = std::min(trainer.step() + 1, steps);
    }
    if (stop.stop_requested()) return false;
    result.skipped = trainer.skipped();
    if (const plan::Program& program = trainer.program(); program.shards > 1)
      result.sent_bytes = static_cast<double>(forecast::sent_bytes(program, program.shards));
    result.tokens_per_second = median(std::move(speeds));
    if (number == 0) process_bytes_ = trainer.memory().process;
    result.peak_bytes = static_cast<double>(trainer.memory().peak() - trainer.memory().process);
    for (const train::HealthFinding& f : health.findings()) {
      result.findings.push_back(f.warning.text);
      const std::string lost = what_is_lost(f);
      if (std::ranges::find(result.losses, lost) == result.losses.end()) result.losses.push_back(lost);
    }
    end_ = copy_masters(trainer);
    if (is_reference(number)) moved_ = distance(end_, start, trainer.device()).value_or(0);
    return true;
  }

  /// Returns how far the weights of each run of a round are from those of the last run of the reference,
  /// which has the same seed.
  std::vector<std::optional<double>> distances_of(std::span<const std::size_t> round) {
    std::vector<std::optional<double>> distances(round.size());
    for (std::size_t i = 0; i < round.size(); ++i) {
      const auto rank = static_cast<int>(i);
      const bool own = rank == ranks_.rank();
      if (is_reference(round[i])) {
        Masters end = masters_of_rank(ranks_, own ? end_ : Masters(), rank);
        if (end.empty()) continue;  // it did not start
        if (own) reference_.moved = moved_;
        ranks_.broadcast(std::as_writable_bytes(std::span(&reference_.moved, 1)), rank);
        reference_.end = std::move(end);
        if (reference_.moved > 0) distances[i] = 0;
      } else if (own && !end_.empty()) {
        const std::optional<double> apart = distance(end_, reference_.end, *all_[round[i]]->device);
        if (apart && reference_.moved > 0) distances[i] = *apart / reference_.moved;
      }
    }
    ranks_.broadcast(std::as_writable_bytes(std::span(&process_bytes_, 1)));
    std::vector<std::span<std::byte>> blocks(static_cast<std::size_t>(ranks_.size()));
    for (std::size_t i = 0; i < distances.size(); ++i)
      blocks[i] = std::as_writable_bytes(std::span(&distances[i], 1));
    ranks_.all_gather(std::move(blocks)).get();
    return distances;
  }

  void tell(std::size_t number, const train::StepReport& r, std::int64_t steps) const {
    if (on_step_) {
      on_step_({all_[number]->name, static_cast<std::int64_t>(number) + 1, std::ssize(all_), r.step, steps,
                r.loss});
    }
  }

  const PlannedComparison& plan_;
  const OnComparedStep& on_step_;
  const std::stop_token& stop_;
  comm::Communicator& ranks_;
  std::vector<const PlannedRun*> all_;
  std::size_t next_ = 0;           // run
  std::size_t process_bytes_ = 0;  // before the first run
  Masters end_;                    // of this rank's last run; none if it did not start
  double moved_ = 0;               // by that run
  ReferenceWeights reference_;
  Comparison result_;
};

}  // namespace

Comparison train_and_compare(const PlannedComparison& plan, const OnComparedStep& on_step,
                             const std::stop_token& stop, comm::Communicator* ranks) {
  comm::Communicator alone;
  return ComparisonTraining(plan, on_step, stop, ranks != nullptr ? *ranks : alone)();
}

}  // namespace mantissa::lab
