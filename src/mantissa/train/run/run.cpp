#include "mantissa/train/run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/lock.h"
#include "mantissa/engine/runtime/process.h"
#include "mantissa/kernels/guard_count.h"
#include "mantissa/report/summary.h"
#include "mantissa/setup/forecast/native.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/train/run/claim.h"
#include "mantissa/train/run/cures.h"
#include "mantissa/train/run/data_hash.h"
#include "mantissa/train/run/journal.h"
#include "mantissa/train/run/observations.h"
#include "mantissa/train/run/orders.h"
#include "mantissa/train/run/progress.h"
#include "mantissa/train/run/run_files.h"
#include "mantissa/train/steps/resume.h"

namespace mantissa::run {
namespace {

constexpr const char* kEarlierStays = "the model or adapter of the earlier run stays for now";

void check_plans(const train::Trainer& trainer) {
  if (!trainer.config().native_only) return;
  for (const programs::RunPart& part : trainer.parts())
    forecast::check_native(*part.program, trainer.device());
}

report::RunSummary summary_of(const Result& r) {
  report::RunSummary s;
  s.steps = r.steps;
  s.final_loss = r.final_loss;
  if (r.validation) s.validation_loss = r.validation->loss;
  s.tokens = r.tokens;
  s.seconds = r.seconds;
  s.predicted_peak_bytes = static_cast<std::int64_t>(r.predicted_peak_bytes);
  s.measured_peak_bytes = static_cast<std::int64_t>(r.measured_peak_bytes);
  s.skipped = r.skipped;
  s.policy = r.policy;
  s.weights_xxh64 = r.weights_xxh64;
  return s;
}

/// One run, from a trainer and an optional state to its summary.
class Run {
 public:
  Run(train::Trainer& trainer, const disk::RunLock& lock, Orders& orders, RowHashes rows, Start& start,
      const Events& events, std::stop_token stop)
      : trainer_(trainer),
        orders_(orders),
        config_(trainer.config()),
        told_(std::move(start.told)),
        directory_(start.directory),
        out_(start.directory.out),
        returns_weights_(start.return_weights),
        names_(names_of(config_, start.files)),
        kept_(trainer, lock, std::move(rows), out_, std::move(start.files)),
        events_(events),
        stop_(std::move(stop)) {}

  Result operator()(const std::optional<io::FoundState>& state) {
    if (directory_.resume) load_state(state);
    adopt_earlier(out_, names_);
    // First the states, the newest last: until it is gone, the earlier run is there with its logs.
    if (directory_.overwrite || directory_.resume) io::remove_states_after(out_, trainer_.step());
    // Before anything is replaced: an earlier model must not stand for the new config.
    if (trainer_.step() == 0) begin_anew(out_);
    event_file_ = report::new_event_file(out_);
    if (config_.log.tensorboard) names_.files.insert(event_file_);
    tell_stays("an unfinished result stays", claim(out_, names_));
    begin_directory();
    for (const std::string& note : trainer_.notes()) tell(note);
    keep_start();
    runtime::release_free_memory();  // planning's
    return loop();
  }

 private:
  void keep_start() {
    {
      const RemoteReads reads(orders_, trainer_);
      kept_.keep_start();
    }
    if (trainer_.shares_weights()) orders_.tell(Order::start);
  }

  void tell(const std::string& note) const {
    if (events_.on_note) events_.on_note(note);
  }

  void warn(const std::string& text) const {
    if (events_.on_warning) events_.on_warning({text});
  }

  void load_state(const std::optional<io::FoundState>& chosen) {
    if (!chosen) return tell(fmt::format("{} has no state yet: the run starts at step 1", out_.string()));
    const io::StateReader state(chosen->path);
    changes_ = state.header().changes;
    if (const std::optional<std::string> change =
            train::resumed_change(state.header(), config_, model_json(trainer_, chosen->step)))
      changes_.push_back(*change);
    restore(trainer_, state, chosen->path);
    last_loss_ = state.header().loss;
    validates_ = state.header().validates;
    tell(fmt::format("resumed from {} at step {}", printable(chosen->path.string()), chosen->step));
    if (changes_.size() > state.header().changes.size()) tell("changed at " + changes_.back());
  }

  void begin_directory() {
    tell_stays(surplus_, io::keep_newest_states(out_, static_cast<int>(config_.checkpoint.keep)));
    const explain::Explained plan = explain::describe_training(
        config_, trainer_.source().config, trainer_.parts(), trainer_.part(), trainer_.memory(),
        trainer_.machine(), trainer_.device(), told_, {}, trainer_.task().passes());
    disk::write_file_atomic(out_ / "config.toml", config_.to_toml());
    disk::write_file_atomic(out_ / "plan.txt", explain::to_text(plan));
    kept_.begin();
    predicted_peak_ = plan.peak_bytes;
    progress_.set_stages(plan.training->stages);
    for (const std::string& note : told_.notes) tell(note);
    for (const std::string& warning : told_.warnings) warn(warning);
    if (events_.on_plan) events_.on_plan(plan);
  }

  void save_state() {
    // A state must not refer to lines that a power loss can take.
    if (journal_) journal_->sync();
    if (observations_) observations_->sync();
    if (events_.before_state) events_.before_state();
    const std::string stays = kept_.save_state(orders_, last_loss_, changes_, validates_);
    saved_ = trainer_.step();
    tell_stays(surplus_, stays);
    tell_stays(kEarlierStays, kept_.earlier_stays());
    if (events_.on_state) events_.on_state(saved_, kept_.last_state());
  }

  /// Says once why something stays that could not be removed.
  void tell_stays(const std::string& what, const std::string& why) {
    if (!why.empty() && told_stays_.insert(what).second) warn(fmt::format("{}: {}", what, why));
  }

  void save_unsaved() {
    if (saved_ != trainer_.step()) save_state();
  }

  Result loop() {
    const Clock::time_point start = Clock::now();
    Journal& journal = journal_.emplace(config_, out_, trainer_.step(), event_file_);
    observations_.emplace(config_, out_, trainer_.step());
    for (const std::string& note : journal.notes()) tell(note);
    if (const std::string note = observations_->note(); !note.empty()) tell(note);
    for (const std::string& warning : observations_->unmatched(trainer_.program())) warn(warning);
    Result result;
    saved_ = trainer_.step();
    const std::int64_t tokens_before = trainer_.tokens();
    const kernels::GuardCount guarded_before = kernels::guard_count();
    result.first_loss = last_loss_;
    if (trainer_.step() == 0 && trainer_.task().measures_start()) validate(journal);
    if (validates_ && is_due(saved_)) {  // a stop came between the step of the state and its validation
      validate(journal);
      if (!stop_.stop_requested()) save_state();
    }
    while (trainer_.step() < config_.run.steps && !stop_.stop_requested()) {
      progress_.tell_stage(result.steps_here == 0);
      const std::optional<train::StepReport> r = advance_or_save(journal);
      if (!r) break;
      // A first batch that is skipped has no loss.
      if (result.steps_here == 0 || std::isnan(result.first_loss)) {
        result.first_loss = r->loss;
        result.first_loss_step = r->step;
      }
      if (!r->batch_skipped) last_loss_ = r->loss;
      last_overflow_ = r->overflow;
      journal.write(*r);
      progress_.tell_step(*r, start, ++result.steps_here);
      validates_ = is_due(r->step) || r->step == config_.run.steps;
      if (is_due(r->step)) {
        validate(journal);
        if (!stop_.stop_requested()) save_state();
      }
    }
    result.final_loss = last_loss_;
    if (!stop_.stop_requested()) finish(result, journal);
    result.interrupted = result.model.empty();
    if (result.interrupted) save_unsaved();
    orders_.tell(Order::end);
    if (!result.interrupted) result.findings = progress_.findings(kept_.begins());
    result.skipped = trainer_.skipped();
    result.fallback_share = (kernels::guard_count() - guarded_before).slow_share();
    result.steps = trainer_.step();
    result.tokens = trainer_.tokens();
    result.tokens_here = result.tokens - tokens_before;
    result.seconds = seconds_since(start);
    result.predicted_peak_bytes = predicted_peak_;
    result.measured_peak_bytes = runtime::peak_resident_bytes();
    result.policy = config_.policy.line();
    result.policy_name = config_.policy.short_line();
    if (!result.interrupted) report::write_summary(out_ / "summary.json", summary_of(result));
    return result;
  }

  /// Returns true if a state is due after `step`. The last step is handled separately.
  bool is_due(std::int64_t step) const {
    const std::int64_t interval = config_.checkpoint.interval;
    return interval > 0 && step > 0 && step % interval == 0 && step < config_.run.steps;
  }

  /// Runs a step. If it fails, writes the steps before it to the log and saves the state.
  std::optional<train::StepReport> advance_or_save(Journal& journal) {
    observations_->begin(trainer_);
    orders_.tell(Order::advance);
    try {
      std::optional<train::StepReport> report = trainer_.advance(stop_);
      orders_.hear(trainer_.stopped());
      observations_->end(trainer_, report.has_value());
      return report;
    } catch (const ProgramFailed&) {  // no setting of the run cures it
      observations_->end(trainer_, false);
      journal.write_kept();
      save_unsaved();
      throw;
    } catch (const RunStopped& e) {
      observations_->end(trainer_, false);
      journal.write_kept();
      save_unsaved();
      throw_tried(e, kept_.last_state(), trainer_.step() + 1, false);
    }
  }

  /// Throws the error with the cures that worked in a replay from `state`.
  [[noreturn]] void throw_tried(const RunStopped& e, const std::filesystem::path& state, std::int64_t step,
                                bool validates) const {
    orders_.tell(Order::end);  // replays run on this rank alone
    Tried after = tried(e.cures(),
                        {config_, trainer_.source(), trainer_.task(), trainer_.device(), state, step,
                         validates, trainer_.memory().peak()},
                        stop_);
    const bool none = !after.failed.empty() && std::ranges::none_of(after.cures, &Cure::tested);
    throw RunStopped(
        none ? fmt::format("{}; no cure that was tried works: {}", e.message(), failed_text(after.failed))
             : e.message(),
        std::move(after.cures));
  }

  /// Validates. A non-finite number of held-out data stops the run after saving its state. A resumed run does
  /// not validate that step again, unless it was a reward program that failed.
  std::optional<train::Validation> validated(Journal& journal) {
    orders_.tell(Order::validate);
    try {
      std::optional<train::Validation> validation = trainer_.validate(stop_);
      orders_.hear(trainer_.stopped());
      return validation;
    } catch (const ProgramFailed&) {
      save_unsaved();
      throw;
    } catch (const RunStopped& e) {
      journal.write_validation(trainer_.step(), {});
      validates_ = false;
      save_unsaved();
      const bool at_end = trainer_.step() == config_.run.steps;  // a run resumed earlier does not validate it
      throw_tried(e, kept_.last_state(), trainer_.step() + 1, at_end);
    }
  }

  std::optional<train::Validation> validate(Journal& journal) {
    std::optional<train::Validation> validation = validated(journal);
    if (validation || !stop_.stop_requested()) validates_ = false;  // there may be no held-out data
    if (!validation) return validation;
    journal.write_validation(trainer_.step(), *validation);
    if (events_.on_validation) events_.on_validation(trainer_.step(), *validation);
    return validation;
  }

  /// Completes a run. Leaves result.model empty if a stop came before writing the model.
  void finish(Result& result, Journal& journal) {
    const bool due = validates_;
    result.validation = validate(journal);
    if (stop_.stop_requested()) return;
    if (due) {
      save_state();  // also in place of one without this validation
    } else {
      save_unsaved();
    }
    if (!std::isfinite(last_loss_) && config_.run.on_nonfinite != "continue") stop_at_last_loss();
    const RemoteReads reads(orders_, trainer_);
    result.model = kept_.result();
    result.model_format = *config_.policy.fields().checkpoint;
    const std::string loss = weights::checkpoint_loss(trainer_.weights(), result.model_format);
    if (!loss.empty()) tell(loss);
    result.weights_xxh64 = fmt::format("{:016x}", kept_.save_result());
    tell_stays(kEarlierStays, kept_.earlier_stays());
    if (returns_weights_) {
      result.weights = weights::save_to_memory(trainer_.weights(), trainer_.model(), config_.policy);
    }
  }

  /// A run whose last step was skipped for a non-finite forward pass has no result.
  [[noreturn]] void stop_at_last_loss() const {
    if (trainer_.applied() == 0 && !last_overflow_) {
      throw RunStopped(
          fmt::format("all {} batches were skipped as run.skip_batches requests, so nothing was "
                      "trained and there is no model; skip fewer batches",
                      trainer_.step()));
    }
    std::string message =
        fmt::format("step {}: the loss of the last step is {}", trainer_.step(), std::abs(last_loss_));
    if (last_overflow_) {
      message +=
          fmt::format("; the first such value is {}; data {}", last_overflow_->what, last_overflow_->rows);
    }
    std::vector<io::FoundState> before = io::find_states(out_);
    std::erase_if(before, [&](const io::FoundState& s) { return s.step >= trainer_.step(); });
    const std::string from = before.empty() ? "--overwrite" : fmt::format("--resume={}", before.back().step);
    const std::filesystem::path state = before.empty() ? "" : before.back().path;
    throw_tried(RunStopped(message, {{{from, "--precision", "32-true"}}}), state, trainer_.step(), false);
  }

  train::Trainer& trainer_;
  Orders& orders_;
  const config::RunConfig& config_;
  config::Told told_;
  const DirectoryOptions& directory_;
  const std::filesystem::path& out_;
  bool returns_weights_;
  RunNames names_;
  std::string event_file_;  // of TensorBoard
  RunFiles kept_;
  const Events& events_;
  std::stop_token stop_;
  Progress progress_{trainer_, events_};
  double last_loss_ = std::numeric_limits<double>::quiet_NaN();  // of the trainer's current step
  std::optional<train::Overflow> last_overflow_;                 // of the last step, if it was skipped
  std::vector<std::string> changes_;
  std::size_t predicted_peak_ = 0;
  std::int64_t saved_ = 0;
  std::optional<Journal> journal_;
  const std::string surplus_ =
      fmt::format("an old state stays, beside the checkpoint.keep = {} newest", config_.checkpoint.keep);
  std::set<std::string> told_stays_;
  bool validates_ = false;  // the validation that is due after the current step is still to be done
  std::optional<Observations> observations_;
};

/// The part of a rank that does not lead: it writes and tells nothing.
void train_along(Start start, const runtime::Device& device, const std::stop_token& stop) {
  const auto [begins, state] = receive_start(*start.ranks);
  if (!begins) return;
  train::Trainer trainer(start.config, std::move(start.source), std::move(start.task), device,
                         state ? state->step : 0, start.ranks);
  if (state) restore(trainer, io::StateReader(state->path), state->path);
  follow(
      trainer, *start.ranks, [&] { watch_start(trainer, start.directory.out); }, stop);
}

}  // namespace

Result train(Start start, const Events& events, const runtime::Device& device, std::stop_token stop) {
  check_same_config(start.ranks, start.config);
  if (start.ranks != nullptr && !start.ranks->leads()) {
    train_along(std::move(start), device, stop);
    return {};
  }
  std::stop_source stopped;
  const std::stop_callback forward(stop, [&stopped] { stopped.request_stop(); });
  Orders orders(start.ranks, stopped);
  check_place(start.directory.out, start.source);
  disk::NewDirectories created(start.directory.out);
  const disk::RunLock lock(start.directory.out);
  if (!lock.held() && events.on_warning)
    events.on_warning(
        {fmt::format("{}: its file system has no locks: two processes that write this run would mix "
                     "their files, and nothing prevents it",
                     start.directory.out.string())});
  // Only the holder of the lock may look.
  io::finish_replaced_states(start.directory.out);
  const std::optional<io::FoundState> state = choose_state(start.directory);
  check_claim(start.directory.out, names_of(start.config, start.files), state ? state->step : 0);
  if (!state && !start.directory.overwrite)
    check_result_stays(start.directory.out, start.directory.resume.has_value());
  orders.tell_start(state);
  const std::int64_t done = state ? state->step : 0;
  RowHashes rows(start.config, start.task->dataset(), done);
  train::Trainer trainer(start.config, std::move(start.source), std::move(start.task), device, done,
                         start.ranks);
  check_plans(trainer);
  created.keep();
  return Run(trainer, lock, orders, std::move(rows), start, events, stopped.get_token())(state);
}

}  // namespace mantissa::run
