#include "mantissa/train/steps/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/plan/rules.h"
#include "mantissa/engine/runtime/process.h"
#include "mantissa/kernels/guard_count.h"
#include "mantissa/precision/policy/glob.h"
#include "mantissa/setup/config/ranks.h"
#include "mantissa/setup/config/schedule.h"
#include "mantissa/setup/config/stages.h"
#include "mantissa/setup/weights/frozen_hash.h"
#include "mantissa/train/steps/evaluation_weights.h"

namespace mantissa::train {
namespace {

/// Returns the share of `all` that `part` leaves.
double share_below(std::int64_t part, std::int64_t all) {
  return 1 - static_cast<double>(part) / static_cast<double>(all);
}

/// Throws for initial weights beyond the range of their format.
void check_drawn(const runtime::WeightSet& weights) {
  for (std::size_t i = 0; i < weights.program().slots.size(); ++i) {
    const plan::Slot& slot = weights.program().slots[i];
    if (slot.fixed || !weights.has(slot.master_buffer)) continue;
    if (weights.device().all_finite(weights.master(i), slot.shape.count())) continue;
    throw ConfigError(
        fmt::format("model.initializer_range: {} has initial values beyond the largest {} ({}); "
                    "lower it, or keep this weight in f32",
                    slot.name, name(slot.master), traits(slot.master).max_finite),
        {{{"--rule", std::string(precision::rule_scope(slot.name)) + ": params=f32"}}});
  }
}

/// Adds the memory of a task. Its programs use the arena of training, which may have to be larger for them.
void add_task_memory(forecast::MemoryForecast& forecast, const TaskMemory& task, std::size_t training_arena) {
  forecast.reference += task.weights;
  forecast.work += task.arena - std::min(task.arena, training_arena);
  forecast.data += task.data;
}

/// Throws if a weight that has no file is held in quantized blocks.
void check_source(const plan::Program& program) {
  for (const plan::Slot& slot : program.slots) {
    const plan::Buffer& master = program.buffer(slot.master_buffer);
    if (!master.quants) continue;
    throw ConfigError(fmt::format(
        "{}: is held in {}, which is made from trained weights, but the model has none. Fix: give a "
        "model with weights as model.path",
        slot.name, mantissa::traits(master.quants->format).name));
  }
}

}  // namespace

Trainer::Trainer(const config::RunConfig& config, weights::ModelSource source, std::unique_ptr<Task> task,
                 const runtime::Device& device, std::int64_t done, comm::Communicator* ranks)
    : ranks_(ranks != nullptr ? *ranks : alone_),
      config_(config),
      source_(std::move(source)),
      task_(std::move(task)),
      device_(device),
      parts_(programs::compile_parts(config_, source_.config, device, {ranks_.rank(), ranks_.size()})),
      part_(part_of(done)),
      carried_(program()),
      batch_(config_.batch.leaf, config_.run.seed),
      whole_(config_.batch.leaf, config_.run.seed),
      skipped_batches_(config::parse_steps(config_.run.skip_batches)) {
  config::check_ranks(config_, ranks_.size());
  if (!ranks_.alone()) task_->share(ranks_);
  ranks_.set_timeout(std::chrono::milliseconds(std::llround(1000 * config_.distributed.timeout)));
  for (std::size_t s = 0; s < config::stage_count(config_); ++s) {
    const config::RunConfig own = config::stage_config(config_, s);
    stages_.push_back({own, config::stage_model(config_, source_.config, s), config::schedule_of(own)});
  }
  for (const programs::RunPart& part : parts_) plan::check_rules(*part.program);
  if (const std::optional<precision::ScalerOptions> scaler = config::scaler_options(config_))
    scaler_.emplace(*scaler);
  const std::span<const programs::RunPart> left = std::span(parts_).subspan(part_);  // of a resumed run
  memory_ = forecast::forecast_memory(left, 0);  // the data is already in memory
  add_task_memory(memory_, task_->memory(), programs::largest_arena(left));
  memory_.process += forecast::process_bytes(task_->passes());
  const auto here = static_cast<std::size_t>(ranks_.local_size());
  if (const std::size_t there = runtime::machine_memory_bytes(); memory_.peak() * here > there) {
    throw ResourceError(
        fmt::format("this run needs {:.1f} GB of memory{}, and the machine has {:.1f} GB; lower "
                    "batch.micro_batch_size, data.sequence_length, or the model's sizes (explain shows the "
                    "memory by purpose)",
                    static_cast<double>(memory_.peak()) / 1e9,
                    here > 1 ? fmt::format(" for each of {} ranks on this machine", here) : "",
                    static_cast<double>(there) / 1e9));
  }
  weights_ = allocate_weights(&notes_);
  if (source_.config.adapter != nullptr) {
    notes_.insert(notes_.begin(), source_.notes.begin(), source_.notes.end());
  } else if (source_.weights.empty()) {
    check_source(program());
    weights_->initialize(config_.run.seed);
    check_drawn(*weights_);
  } else {
    notes_ = weights::load_weights(*weights_, source_, config_.run.seed);
  }
  frozen_hash_ = weights::hash_of_quantized(*weights_);
  notes_.insert(notes_.end(), source_.config.notes.begin(), source_.config.notes.end());
  kept_ = device_.allocate(program().update->memory.kept);
  bind();
  start_weight_states(*update_, *weights_);
}

const forecast::Machine& Trainer::machine() {
  // Before the first step, the arena is not resident yet: measuring in less memory leaves the peak as it is.
  if (!machine_) machine_ = forecast::measure_machine(device_, program(), program().memory.arena());
  return *machine_;
}

/// The weights of an adapter's base are read here, in the formats of this program.
std::shared_ptr<runtime::WeightSet> Trainer::allocate_weights(std::vector<std::string>* notes) const {
  std::vector<const plan::Program*> programs = task_->begin_part(parts_[part_].first);
  if (!programs.empty() && !program().gathers.empty()) {
    throw ConfigError(
        "distributed.zero = 3: this objective reads all weights at once, to sample or for log-probabilities "
        "before a step. Fix: --set distributed.zero=2");
  }
  programs.insert(programs.begin(), &program());
  if (source_.config.adapter == nullptr) return std::make_shared<runtime::WeightSet>(programs, device_);
  return std::make_shared<runtime::WeightSet>(
      weights::open_weights(program(), source_, device_, config_.run.seed, notes));
}

void Trainer::bind() {
  update_.reset();
  shared_.reset();
  shard_sum_.reset();
  auto arena =
      std::make_shared<runtime::Arena>(std::max(program().memory.arena(), task_->memory().arena), device_);
  session_ = std::make_unique<runtime::Session>(parts_[part_].program, weights_, arena);
  task_->bind(weights_, std::move(arena));
  if (sharing().divides()) shared_.emplace(ranks_, sharing(), program());
  if (streams()) shared_->stream(gradients(), device_, config_.run.seed);
  if (streams() || !program().gathers.empty()) session_->executor().set_exchange(&*shared_);
  update_ =
      std::make_unique<Update>(parts_[part_].numbers, *session_, kept_.data(), shared_ ? &*shared_ : nullptr);
  if (row_parts() > 1) {
    ring_.emplace(ranks_, row_parts());
    session_->executor().set_ring(&*ring_);
  }
  const std::int64_t shards = program().shards;
  if (!streams()) {
    completions_ = plan::completions(program());
    shard_sum_.emplace(gradients(), comm::shards_of(ranks_.rank(), ranks_.size(), shards, row_parts()),
                       shards, program().reduce, program().reduce_rounding, config_.run.seed);
    if (shared_) shard_sum_->set_owners(shared_->owners_of_gradients());
  }
  if (shared_) {
    weights_->set_remote(
        [memory = state_memory(), this](std::size_t slot, std::size_t offset, std::span<std::byte> out) {
          const std::string name = "master." + program().slots[slot].name;
          std::ranges::find(memory, name, &NamedMemory::name)->read(offset, out);
        });
  }
  send_weights();
}

void Trainer::send_weights() {
  if (shared_) shared_->send(*weights_);
}

std::vector<comm::Gradient> Trainer::gradients() const {
  std::vector<comm::Gradient> all;
  for (const plan::Slot& slot : program().slots) {
    if (slot.gradient != plan::kNoBuffer)
      all.push_back({session_->executor().buffer(slot.gradient), slot.shape.count(), hash_name(slot.name)});
  }
  return all;
}

runtime::Executor& Trainer::next_executor() {
  enter(part_of(step_));
  return session_->executor();
}

runtime::Executor& Trainer::next_update() {
  enter(part_of(step_));
  return update_->executor();
}

std::vector<Trainer::NamedGradient> Trainer::last_gradients() {
  std::vector<NamedGradient> all;
  for (const plan::Slot& slot : program().slots) {
    if (slot.gradient == plan::kNoBuffer) continue;
    const optim::Gradient& of = update_->gradients()[all.size()];
    all.push_back({slot.name, of.matrix, of.count});
  }
  return all;
}

const model::ModelConfig& Trainer::model_at(std::int64_t step) const {
  return stages_[config::stage_at(config_, std::max<std::int64_t>(0, step - 1))].model;
}

double Trainer::learning_rate() const {
  return stages_[config::stage_at(config_, step_)].schedule.at(applied_ - stage_applied_ + 1);
}

void Trainer::count_stage() {
  if (step_ == config::first_step(config_, config::stage_at(config_, step_))) stage_applied_ = applied_;
}

std::size_t Trainer::part_of(std::int64_t done) const {
  std::size_t part = 0;
  while (part + 1 < parts_.size() && parts_[part + 1].first <= done) ++part;
  return part;
}

void Trainer::enter(std::size_t part) {
  if (part == part_) return;
  update_.reset();
  watch_.reset();
  session_.reset();
  task_->bind(nullptr, nullptr);  // releases the arena before more memory is allocated
  part_ = part;
  std::shared_ptr<runtime::WeightSet> next = allocate_weights(nullptr);
  next->assign(*weights_);
  weights_ = std::move(next);
  carried_.assign_formats(program());
  bind();
}

void Trainer::restore(const Progress& progress, const std::optional<precision::ScalerState>& scaler) {
  step_ = progress.step;
  applied_ = progress.applied;
  tokens_ = progress.tokens;
  forward_overflows_ = progress.forward_overflows;
  stage_applied_ = progress.stage_applied;
  if (scaler_ && scaler) scaler_->restore(*scaler);
  weights_->scales().refresh();
  weights_->scales().forget();  // those of the weights before the state was read
  weights_->refresh_copies();
  send_weights();
}

bool Trainer::measures_health(std::int64_t step) const {
  const std::int64_t interval = config_.log.health_interval;
  return interval > 0 && (step % interval == 0 || step == config_.run.steps);
}

bool Trainer::measures_distributions(std::int64_t step) const {
  constexpr std::int64_t kEvery = 10;  // measurements: histograms take more space than all other figures
  return config_.log.tensorboard &&
         (step / config_.log.health_interval % kEvery == 1 || step == config_.run.steps);
}

std::optional<StepReport> Trainer::advance(const std::stop_token& stop) {
  // A task does not hear a stop of which other ranks do not know.
  const std::stop_token for_task = ranks_.alone() ? stop : std::stop_token();
  const auto start = std::chrono::steady_clock::now();
  const kernels::GuardCount guarded = kernels::guard_count();
  StepReport r;
  compare_when_due();
  count_stage();
  if (config::has_step(skipped_batches_, step_ + 1)) return skip_batch();
  enter(part_of(step_));
  r.step = step_ + 1;
  if (scaler_) r.loss_scale = scaler_->scale();
  const std::optional<text::StepData> drawn =
      task_->step(r.step, stage_config().batch.global_batch_size, for_task);
  if (!drawn) return std::nullopt;
  const text::StepData& rows = *drawn;
  std::optional<runtime::HealthProbe> health;
  const bool measures = measures_health(r.step);
  if (measures) health.emplace(*session_, measures_distributions(r.step));
  const bool rounds = program().shards > 1 && !holds(program().reduce, program().arithmetic);
  reduced_.assign(measures && rounds ? update_->gradients().size() : 0, {});
  watch_.reset();
  if (watches_) watch_ = std::make_unique<runtime::NonFiniteWatch>(session_->executor(), first_row_);
  std::optional<objective::Outcome> outcome = run_rows(rows, objective::Pass::train, stop);
  if (!outcome) return std::nullopt;
  r.loss = outcome->loss;
  r.metrics = std::move(outcome->metrics);
  update_weights(r, rows, health);
  // A skipped step leaves the states of the rows before it, which are finite.
  if (!r.skipped && std::isfinite(r.loss)) {
    carried_.take(*session_);
    share_carried();
  }
  watch_.reset();
  if (scaler_) scaler_->update(r.skipped);
  weights_->scales().end_step();
  weights_->refresh_derived();
  if (!r.skipped) send_weights();
  step_ = r.step;
  const std::int64_t predicted = rows.predicted(), computed = rows.tokens();
  tokens_ += predicted;
  r.tokens = tokens_;
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  r.tokens_per_second = static_cast<double>(predicted) / r.seconds;
  const std::int64_t places = rows.items() * rows.sequence_length;
  const double micros = static_cast<double>(computed) / static_cast<double>(program().token_capacity);
  if (config_.train.objective == "sft") {
    r.metrics.push_back({"masked_share", share_below(predicted, computed)});
    r.metrics.push_back({"padding_share", share_below(computed, places)});
  }
  r.fallback_share = (kernels::guard_count() - guarded).slow_share();
  if (machine_) r.peak_share = forecast::seconds_at_peak(program(), *machine_, device_) * micros / r.seconds;
  return r;
}

void Trainer::update_weights(StepReport& r, const text::StepData& rows,
                             std::optional<runtime::HealthProbe>& health) {
  r.lr = learning_rate();
  const bool checks = config_.run.on_nonfinite != "continue";
  if (checks && !std::isfinite(r.loss) && !scaler_) return overflowed(r, rows);
  if (health) share_rounded(*health);
  const UpdateResult update = update_->apply({.lr = r.lr,
                                              .t = applied_ + 1,
                                              .step = r.step,
                                              .seed = config_.run.seed,
                                              .loss_scale = scale(),
                                              .max_grad_norm = config_.optimizer.max_grad_norm,
                                              .checks = checks || scaler_.has_value()},
                                             health ? &*health : nullptr);
  r.grad_norm = update.gradients.norm;
  if (update.broken) return beyond_format(r, *update.broken);
  if (!update.applied) {
    health.reset();
    return overflowed(r, rows);
  }
  ++applied_;
  forward_overflows_ = 0;
  if (health) r.health = health_of(*health);
  add_reduced(r.health);
}

std::vector<runtime::ParameterHealth> Trainer::health_of(runtime::HealthProbe& probe) {
  std::vector<runtime::ParameterHealth> own = probe.finish(unchanged_);
  return shared_ ? shared_->gather(std::move(own)) : own;
}

void Trainer::add_reduced(std::vector<runtime::ParameterHealth>& health) {
  const std::vector<NamedGradient> gradients =
      reduced_.empty() ? std::vector<NamedGradient>() : last_gradients();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto of = std::ranges::find(health, gradients[i].name, &runtime::ParameterHealth::name);
    if (of == health.end() || reduced_[i].count == 0) continue;
    const auto count = static_cast<double>(reduced_[i].count);
    of->reduce_flushed = static_cast<double>(reduced_[i].flushed) / count;
    of->reduce_saturated = static_cast<double>(reduced_[i].overflowed) / count;
  }
}

StepReport Trainer::skip_batch() {
  StepReport r;
  r.lr = learning_rate();
  r.step = ++step_;
  r.skipped = r.batch_skipped = true;
  r.loss = r.grad_norm = std::numeric_limits<double>::quiet_NaN();
  if (scaler_) r.loss_scale = scaler_->scale();
  r.tokens = tokens_;
  return r;
}

std::optional<Validation> Trainer::validate(const std::stop_token& stop) {
  const std::stop_token for_task = ranks_.alone() ? stop : std::stop_token();
  compare_when_due();
  enter(part_of(std::max<std::int64_t>(0, step_ - 1)));  // also if a run resumes at the end of a part
  const std::unique_ptr<EvaluationWeights> averages = evaluation_weights();
  Validation result{{}, task_->measure(step_, for_task)};
  if (const std::optional<text::StepData> held_out = task_->held_out(step_, for_task)) {
    std::optional<objective::Outcome> outcome = run_rows(*held_out, objective::Pass::evaluate, stop);
    if (!outcome) return std::nullopt;
    result.loss = outcome->loss;
    if (!std::isfinite(outcome->loss) && config_.run.on_nonfinite == "stop") {
      stop_at_value(fmt::format("step {}: the loss on held-out rows is {}", step_,
                                runtime::unsigned_nan(outcome->loss)),
                    find_overflow(*held_out, false), false);
    }
    std::ranges::move(outcome->metrics, std::back_inserter(result.metrics));
  }
  // A stop after the last measurement leaves it complete: a reward program has counted its samples.
  if (!result.loss && result.metrics.empty()) return std::nullopt;
  return result;
}

}  // namespace mantissa::train
