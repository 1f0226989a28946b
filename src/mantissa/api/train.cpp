// A training run and what it leaves behind: directory, lock, metrics, states, model, summary.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/io/atomic.h"
#include "mantissa/io/file.h"
#include "mantissa/io/lock.h"
#include "mantissa/io/state.h"
#include "mantissa/kernels/update.h"
#include "mantissa/precision/supported.h"
#include "mantissa/report/metrics.h"
#include "mantissa/report/summary.h"
#include "mantissa/report/tensorboard.h"
#include "mantissa/runtime/process.h"
#include "mantissa/train/resume.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/watch.h"

namespace mantissa::api {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPart = std::size_t{1} << 16;  // elements of a state that are converted at a time

/// One run from its directory to its summary.
class Run {
 public:
  Run(const Config& config, const TrainOptions& options, const Events& events, std::stop_token stop)
      : config_(config.impl().run),
        told_(config.impl().told),
        options_(options),
        events_(events),
        stop_(std::move(stop)) {
    out_ = options.out.empty() ? fs::path(config_.run.out) : options.out;
  }

  Summary operator()() {
    precision::check_supported(config_.policy);
    const kernels::Context ctx = context_for(options_.hardware, config_.run.threads);
    weights::ModelSource source = weights::find_model(config_.model);
    if (options_.tokens.empty()) {
      const std::string note = data_note(config_, source.config);
      if (!note.empty()) told_.notes.push_back(note);
    }
    text::Dataset data = load_dataset(config_, source.config, options_.tokens);
    check_directory();
    trainer_.emplace(config_, std::move(source), std::move(data), ctx, chosen_ ? chosen_->step : 0);
    for (const cost::Part& part : trainer_->parts()) {
      check_plan(*part.program);
      check_native(config_, *part.program);
    }
    io::make_directories(out_);
    const io::RunLock lock(out_);
    load_state();
    begin_directory(ctx);
    for (const std::string& note : trainer_->notes()) tell(note);
    return loop();
  }

 private:
  void tell(const std::string& note) const {
    if (events_.on_note) events_.on_note(note);
  }

  /// Before anything is computed: may this directory be written?
  void check_directory() {
    const std::vector<io::FoundState> states = io::find_states(out_);
    if (!states.empty() && !options_.resume && !options_.overwrite) {
      throw FileError(fmt::format("{}: holds the state of step {}; --overwrite starts anew, another --out "
                                  "leaves it as it is",
                                  out_.string(), states.back().step),
                      {{{"--resume"}, "goes on from that state"}});
    }
    if (options_.resume) chosen_ = choose_state(states);
  }

  /// The state to go on from; nothing where the run was stopped before it had one.
  std::optional<io::FoundState> choose_state(const std::vector<io::FoundState>& states) const {
    if (*options_.resume == 0) return states.empty() ? std::nullopt : std::optional(states.back());
    std::string there;
    for (const io::FoundState& s : states) {
      if (s.step == *options_.resume) return s;
      there += fmt::format(" {}", s.step);
    }
    throw FileError(fmt::format("--resume={}: {} has no state of that step; it has{}", *options_.resume,
                                out_.string(), there.empty() ? " none" : there));
  }

  void load_state() {
    if (!options_.resume) return;
    if (!chosen_) return tell(fmt::format("{} holds no state yet: the run starts at step 1", out_.string()));
    const io::StateReader state(chosen_->path);
    changes_ = state.header().changes;
    if (const std::optional<std::string> change =
            train::resumed_change(state.header(), config_, model_json()))
      changes_.push_back(*change);
    for (const train::Trainer::NamedMemory& m : trainer_->state_memory()) read_memory(state, m);
    trainer_->restore(state.header().step, state.header().applied, state.header().tokens,
                      state.header().scaler);
    last_loss_ = state.header().loss;
    tell(fmt::format("resumed from {} at step {}", chosen_->path.string(), chosen_->step));
    if (changes_.size() > state.header().changes.size()) tell("changed at " + changes_.back());
  }

  /// Masters, moments and compensations as they were saved; rounded or widened where the precision has
  /// changed.
  void read_memory(const io::StateReader& state, const train::Trainer::NamedMemory& m) const {
    const io::TensorInfo* info = state.tensors().find(m.name);
    if (info == nullptr && m.begins_at_zero) return;  // as it was allocated
    if (info != nullptr && m.newest_first && info->dtype == io::dtype_of(m.type) && info->shape.size() == 1) {
      std::vector<std::byte> saved(info->end - info->begin);
      state.tensors().read(m.name, saved);
      std::copy_n(saved.begin(), std::min(saved.size(), m.bytes.size()), m.bytes.begin());
      return;
    }
    if (info == nullptr || info->shape != m.shape) {
      throw FileError(
          fmt::format("{}: tensor \"{}\" is missing or of another shape than in this config's model; resume "
                      "with the run's own config.toml",
                      chosen_->path.string(), m.name));
    }
    // What is saved as F32 may be more than tf32 holds.
    if (io::scalar_of(info->dtype) == m.type) return state.tensors().read(m.name, m.bytes);
    if (!io::scalar_of(info->dtype)) {
      throw DtypeError(fmt::format(
          "{}: is {} in {}, but policy \"{}\" keeps {} here; resume from another state, or start anew with "
          "--overwrite",
          m.name, io::safetensors_name(info->dtype), chosen_->path.string(), config_.policy.preset(),
          name(m.type)));
    }
    const std::size_t count = static_cast<std::size_t>(info->count());
    for (std::size_t first = 0; first < count; first += kPart)
      convert_memory(state, m, *info, first, std::min(kPart, count - first));
  }

  /// Elements [first, first + n) of what is kept in another format now.
  void convert_memory(const io::StateReader& state, const train::Trainer::NamedMemory& m,
                      const io::TensorInfo& info, std::size_t first, std::size_t n) const {
    const Scalar type = *io::scalar_of(info.dtype);
    const std::size_t saved_bytes = mantissa::bytes_of(type), kept_bytes = mantissa::bytes_of(m.type);
    const kernels::Context& ctx = trainer_->context();
    const auto elements = static_cast<std::int64_t>(n);
    std::vector<std::byte> saved(n * saved_bytes);
    std::vector<double> wide(n), kept(n);
    state.tensors().read(m.name, saved, first * saved_bytes);
    kernels::cast(ctx, elements, saved.data(), type, wide.data(), Scalar::f64);
    std::byte* to = m.bytes.data() + first * kept_bytes;
    kernels::cast(ctx, elements, wide.data(), Scalar::f64, to, m.type);
    kernels::cast(ctx, elements, to, m.type, kept.data(), Scalar::f64);
    for (std::size_t i = 0; i < n; ++i) {
      if (!std::isfinite(wide[i]) || std::isfinite(kept[i])) continue;
      throw DtypeError(fmt::format(
          "{}: is {} in {} and {:g} at element {}, but policy \"{}\" keeps {} here, whose largest is {:g}; "
          "resume under the policy that wrote the state, or keep this in bf16 or f32",
          m.name, io::safetensors_name(info.dtype), chosen_->path.string(), wide[i], first + i,
          config_.policy.preset(), name(m.type), traits(m.type).max_finite));
    }
  }

  void begin_directory(const kernels::Context& ctx) {
    // States of steps that are about to be made again; a model that stands there is replaced when the new one
    // is on the disk.
    if (options_.overwrite || options_.resume) io::remove_states_after(out_, trainer_->step());
    const Plan plan = describe(config_, trainer_->model(), trainer_->program(), trainer_->memory(),
                               trainer_->machine(), ctx, told_);
    io::write_file_atomic(out_ / "config.toml", config_.to_toml());
    io::write_file_atomic(out_ / "plan.txt", plan.text);
    predicted_peak_ = plan.predicted_peak_bytes;
    for (const std::string& note : told_.notes) tell(note);
    for (const std::string& warning : told_.warnings) {
      if (events_.on_warning) events_.on_warning({warning});
    }
    if (events_.on_plan) events_.on_plan(plan);
  }

  std::string model_json() const { return model::to_json(trainer_->model(), "float32").dump(); }

  void save_state() {
    io::StateHeader header;
    header.step = trainer_->step();
    header.applied = trainer_->applied();
    header.skipped = trainer_->skipped();
    header.tokens = trainer_->tokens();
    header.loss = last_loss_;
    if (trainer_->scaler()) header.scaler = trainer_->scaler()->state();
    header.data_position = trainer_->step() * config_.batch.global_batch_size;
    header.seed = config_.run.seed;
    header.config_toml = config_.to_toml();
    header.model_config = model_json();
    header.policy = config_.policy.line();
    header.changes = changes_;
    std::vector<io::TensorToWrite> tensors;
    for (const train::Trainer::NamedMemory& m : trainer_->state_memory()) {
      io::TensorToWrite t;
      t.name = m.name;
      t.dtype = io::dtype_of(m.type);
      t.shape = m.shape;
      t.bytes = m.bytes;
      tensors.push_back(std::move(t));
    }
    io::write_state(out_, header, tensors, static_cast<int>(config_.checkpoint.keep));
    saved_ = header.step;
    if (events_.on_state) events_.on_state(header.step, io::find_states(out_).back().path);
  }

  Summary loop() {
    const auto start = std::chrono::steady_clock::now();
    report::MetricsWriter metrics(out_ / "metrics.jsonl", trainer_->step());
    std::optional<report::TensorBoardWriter> board;
    if (config_.log.tensorboard) board.emplace(out_, trainer_->step());
    Summary summary;
    saved_ = trainer_->step();
    const std::int64_t tokens_before = trainer_->tokens();
    const std::int64_t steps = config_.run.steps;
    summary.first_loss = last_loss_;
    std::int64_t done = 0;
    // A stop between a state's step and its validation left the latter to be done.
    if (is_due(saved_) && !metrics.has_validation(saved_)) validate(metrics, board);
    while (trainer_->step() < steps && !stop_.stop_requested()) {
      const std::optional<train::StepReport> r = advance_or_save();
      if (!r) break;
      if (done == 0) summary.first_loss = r->loss;
      last_loss_ = r->loss;
      last_overflow_ = r->overflow;
      record(metrics, board, *r);
      tell_step(*r, start, ++done);
      if (is_due(r->step)) {
        validate(metrics, board);
        if (!stop_.stop_requested()) save_state();
      }
    }
    summary.steps_here = done;
    summary.final_loss = last_loss_;
    if (!stop_.stop_requested()) finish(summary, metrics, board);
    summary.interrupted = summary.model.empty();
    if (summary.interrupted && saved_ != trainer_->step()) save_state();
    summary.skipped = trainer_->skipped();
    summary.steps = trainer_->step();
    summary.tokens = trainer_->tokens();
    summary.tokens_here = summary.tokens - tokens_before;
    summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    summary.predicted_peak_bytes = predicted_peak_;
    summary.measured_peak_bytes = runtime::peak_resident_bytes();
    summary.policy = config_.policy.line();
    if (!summary.interrupted) write_summary(summary);
    return summary;
  }

  /// Whether a state belongs after `step`, before the last.
  bool is_due(std::int64_t step) const {
    const std::int64_t interval = config_.checkpoint.interval;
    return interval > 0 && step > 0 && step % interval == 0 && step < config_.run.steps;
  }

  /// A step that cannot go on leaves the state before it.
  std::optional<train::StepReport> advance_or_save() {
    try {
      return trainer_->advance(stop_);
    } catch (const RunStopped&) {
      if (saved_ != trainer_->step() && trainer_->step() > 0) save_state();
      throw;
    }
  }

  void record(report::MetricsWriter& metrics, std::optional<report::TensorBoardWriter>& board,
              const train::StepReport& r) const {
    if (r.step % config_.log.interval == 0 || r.step == config_.run.steps) {
      report::StepMetrics m;
      m.step = r.step;
      m.loss = r.loss;
      m.tokens = r.tokens;
      m.grad_norm = r.grad_norm;
      m.lr = r.lr;
      m.loss_scale = r.loss_scale;
      m.skipped = r.skipped;
      m.tokens_per_second = r.tokens_per_second;
      m.peak_share = r.peak_share;
      m.seconds = r.seconds;
      metrics.write(m);
      if (board) board->write(m);
    }
  }

  void tell_step(const train::StepReport& r, std::chrono::steady_clock::time_point start, std::int64_t done) {
    const std::vector<Warning> warnings = watch_.see(r);
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double left = elapsed / static_cast<double>(done) * static_cast<double>(config_.run.steps - r.step);
    const std::string overflow = r.overflow ? fmt::format("{} ({})", r.overflow->what, r.overflow->rows) : "";
    if (events_.on_step) {
      events_.on_step({r.step, config_.run.steps, r.loss, r.tokens, r.grad_norm, r.lr, r.loss_scale,
                       r.skipped, overflow, r.tokens_per_second, r.peak_share, r.seconds, left});
    }
    for (const Warning& warning : warnings) {
      if (events_.on_warning) events_.on_warning(warning);
    }
  }

  /// A loss on held-out rows that is not finite stops the run, with the state that it has. A resumed run does
  /// not measure it again.
  std::optional<double> validated(report::MetricsWriter& metrics) {
    try {
      return trainer_->validate(stop_);
    } catch (const RunStopped&) {
      metrics.write_validation(trainer_->step(), std::numeric_limits<double>::quiet_NaN());
      if (saved_ != trainer_->step()) save_state();
      throw;
    }
  }

  std::optional<double> validate(report::MetricsWriter& metrics,
                                 std::optional<report::TensorBoardWriter>& board) {
    const std::optional<double> loss = validated(metrics);
    if (!loss) return loss;
    metrics.write_validation(trainer_->step(), *loss);
    if (board) board->write_validation(trainer_->step(), *loss);
    if (events_.on_validation) events_.on_validation(trainer_->step(), *loss);
    return loss;
  }

  /// The end of a run; leaves summary.model empty where a stop came before the model was begun.
  void finish(Summary& summary, report::MetricsWriter& metrics,
              std::optional<report::TensorBoardWriter>& board) {
    summary.validation_loss = validate(metrics, board);
    if (stop_.stop_requested()) return;
    if (saved_ != trainer_->step()) save_state();
    if (!std::isfinite(last_loss_)) stop_at_last_loss();
    summary.model = out_ / "model";
    summary.model_format = name(*config_.policy.fields().checkpoint);
    const std::string loss = weights::checkpoint_loss(
        trainer_->weights(), *config_.policy.fields().checkpoint, trainer_->context());
    if (!loss.empty() && events_.on_note) events_.on_note(loss);
    const std::uint64_t hash = weights::save_model(summary.model, trainer_->weights(), trainer_->model(),
                                                   config_.policy, trainer_->context());
    summary.weights_xxh64 = fmt::format("{:016x}", hash);
  }

  /// A run whose last step was skipped for a forward pass that is not finite has no result.
  [[noreturn]] void stop_at_last_loss() const {
    std::string message =
        fmt::format("step {}: the loss of the last step is {}", trainer_->step(), std::abs(last_loss_));
    if (last_overflow_) {
      message +=
          fmt::format("; the first such value is {}; data {}", last_overflow_->what, last_overflow_->rows);
    }
    std::vector<io::FoundState> before = io::find_states(out_);
    std::erase_if(before, [&](const io::FoundState& s) { return s.step >= trainer_->step(); });
    const std::string from = before.empty() ? "--overwrite" : fmt::format("--resume={}", before.back().step);
    throw RunStopped(message, {{{from, "--precision", "32-true"}}});
  }

  void write_summary(const Summary& s) const {
    report::RunSummary out;
    out.steps = s.steps;
    out.final_loss = s.final_loss;
    out.validation_loss = s.validation_loss;
    out.tokens = s.tokens;
    out.seconds = s.seconds;
    out.predicted_peak_bytes = static_cast<std::int64_t>(s.predicted_peak_bytes);
    out.measured_peak_bytes = static_cast<std::int64_t>(s.measured_peak_bytes);
    out.skipped = s.skipped;
    out.policy = s.policy;
    out.weights_xxh64 = s.weights_xxh64;
    report::write_summary(out_ / "summary.json", out);
  }

  config::RunConfig config_;
  config::Told told_;  // of how it was read
  TrainOptions options_;
  const Events& events_;
  std::stop_token stop_;
  fs::path out_;
  std::optional<train::Trainer> trainer_;
  std::optional<io::FoundState> chosen_;  // to go on from
  train::Watch watch_;
  double last_loss_ = std::numeric_limits<double>::quiet_NaN();  // of the step that the trainer stands at
  std::optional<train::Overflow> last_overflow_;                 // of it, where it was skipped
  std::vector<std::string> changes_;
  std::size_t predicted_peak_ = 0;
  std::int64_t saved_ = 0;
};

}  // namespace

Summary train(const Config& config, const TrainOptions& options, const Events& events, std::stop_token stop) {
  return Run(config, options, events, std::move(stop))();
}

}  // namespace mantissa::api
