#include "mantissa/train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/kernels/update.h"
#include "mantissa/runtime/nonfinite.h"
#include "mantissa/runtime/process.h"

namespace mantissa::train {
namespace {

optim::Schedule schedule_of(const config::RunConfig& c) {
  return {optim::parse_schedule(c.schedule.name), c.optimizer.lr, c.schedule.min_lr_ratio,
          c.schedule.warmup_steps, c.run.steps};
}

/// Copies `count` elements of `type` from `data`, or fills them.
void fill(Matrix m, std::int64_t count, double value) {
  if (m.type == Scalar::f64) {
    std::fill_n(static_cast<double*>(m.data), count, value);
  } else {
    std::fill_n(static_cast<float*>(m.data), count, static_cast<float>(value));
  }
}

/// A cure that goes on with the run under more arguments.
Cure resumed(std::vector<std::string> arguments, std::string effect = {}) {
  arguments.insert(arguments.begin(), "--resume");
  return {std::move(arguments), std::move(effect)};
}
Cure resumed_with_rule(const std::string& rule) {
  return resumed({"--rule", rule});
}

/// Refuses weights drawn from the seed that their format cannot hold.
void check_drawn(const runtime::WeightSet& weights, const kernels::Context& ctx) {
  for (std::size_t i = 0; i < weights.program().slots.size(); ++i) {
    const plan::Slot& slot = weights.program().slots[i];
    if (kernels::gradient_norm(ctx, weights.master(i).data, slot.master, slot.shape.count()).finite) continue;
    throw ConfigError(
        fmt::format(
            "model.initializer_range: {} is drawn beyond the largest {} ({}); lower it, or keep this weight "
            "in f32",
            slot.name, name(slot.master), traits(slot.master).max_finite),
        {{{"--rule", slot.name.substr(0, slot.name.rfind('.')) + ": params=f32"}}});
  }
}

}  // namespace

Trainer::Trainer(const config::RunConfig& config, weights::ModelSource source, text::Dataset data,
                 const kernels::Context& ctx, std::int64_t done)
    : config_(config),
      source_(std::move(source)),
      data_(std::move(data)),
      ctx_(ctx),
      parts_(cost::compile_parts(config_, source_.config, ctx)),
      part_(part_of(done)),
      schedule_(schedule_of(config_)),
      batch_(config_.batch.micro_batch_size, config_.data.sequence_length, config_.batch.leaf) {
  if (const std::optional<precision::ScalerOptions> scaler = config::scaler_options(config_))
    scaler_.emplace(*scaler);
  memory_ = cost::forecast_memory(parts_, 0);  // the data are resident already
  if (const std::size_t there = runtime::machine_memory_bytes(); memory_.peak() > there) {
    throw ResourceError(fmt::format(
        "this run needs {:.1f} GB of memory, and the machine has {:.1f} GB; lower "
        "batch.micro_batch_size, data.sequence_length, or the model's sizes (explain shows where it goes)",
        static_cast<double>(memory_.peak()) / 1e9, static_cast<double>(there) / 1e9));
  }
  machine_ = cost::measure_machine(ctx_, program());
  weights_ = std::make_unique<runtime::WeightSet>(program());
  if (source_.weights.empty()) {
    weights_->initialise(config_.run.seed, ctx_);
    check_drawn(*weights_, ctx_);
  } else {
    notes_ = weights::load_weights(*weights_, source_, ctx_);
  }
  notes_.insert(notes_.end(), source_.config.notes.begin(), source_.config.notes.end());
  kept_ = Storage(program().update->memory.kept);
  bind();
  shard_sum_.emplace(gradients(), config_.batch.shards, program().reduce);
}

void Trainer::bind() {
  update_.reset();
  executor_ = std::make_unique<runtime::Executor>(program(), *weights_, ctx_);
  update_ = std::make_unique<Update>(parts_[part_].numbers, *weights_, *executor_, kept_.data(), ctx_);
}

std::vector<comm::Gradient> Trainer::gradients() const {
  std::vector<comm::Gradient> all;
  for (const optim::Gradient& g : update_->gradients()) all.push_back({g.matrix, g.count});
  return all;
}

std::size_t Trainer::part_of(std::int64_t done) const {
  std::size_t part = 0;
  while (part + 1 < parts_.size() && parts_[part + 1].first <= done) ++part;
  return part;
}

void Trainer::enter(std::size_t part) {
  if (part == part_) return;
  update_.reset();
  executor_.reset();  // its arena goes before other memory comes
  part_ = part;
  auto next = std::make_unique<runtime::WeightSet>(program());
  for (std::size_t i = 0; i < program().slots.size(); ++i) {
    const Matrix from = weights_->master(i);
    std::memcpy(next->master(i).data, from.data,
                static_cast<std::size_t>(program().slots[i].shape.count()) * bytes_of(from.type));
  }
  next->scales().take_histories(weights_->scales());
  weights_ = std::move(next);
  weights_->refresh_copies(ctx_);
  bind();
}

void Trainer::restore(std::int64_t step, std::int64_t applied, std::int64_t tokens,
                      const std::optional<precision::ScalerState>& scaler) {
  step_ = step;
  applied_ = applied;
  tokens_ = tokens;
  if (scaler_ && scaler) scaler_->restore(*scaler);
  weights_->scales().refresh();
  weights_->refresh_copies(ctx_);
}

void Trainer::fill_rows(const text::StepData& data, std::int64_t first) {
  const std::int64_t length = data.sequence_length;
  const std::span<std::int32_t> ids = executor_->integers("ids");
  const std::span<std::int32_t> targets = executor_->integers("targets");
  for (std::int64_t r = 0; r < config_.batch.micro_batch_size; ++r) {
    const bool there = first + r < data.rows;  // the last validation rows may not fill a micro-batch
    for (std::int64_t t = 0; t < length; ++t) {
      const auto to = static_cast<std::size_t>(r * length + t);
      const auto from = static_cast<std::size_t>((first + r) * (length + 1) + t);
      ids[to] = there ? data.ids[from] : 0;
      targets[to] = there ? data.target(first + r, t) : -1;
    }
  }
}

void Trainer::finish_shard(std::int64_t shard) {
  executor_->run(graph::Phase::finish, batch_.extent());
  shard_sum_->add(ctx_, gradients(), shard);
}

void Trainer::fill_seeds(const text::StepData& data, std::int64_t first, double total) {
  const Matrix seeds = executor_->buffer("dlog_prob");
  const float* weights = data.weights.data() + first * data.sequence_length;
  for (std::int64_t i = 0; i < config_.batch.micro_batch_size * data.sequence_length; ++i) {
    const double seed = -scale() * static_cast<double>(weights[i]) / total;
    if (seeds.type == Scalar::f64) {
      static_cast<double*>(seeds.data)[i] = seed;
    } else {
      static_cast<float*>(seeds.data)[i] = static_cast<float>(seed);
    }
  }
}

void Trainer::keep_log_probs(const text::StepData& data, std::int64_t first) {
  const Matrix log_prob = executor_->buffer("log_prob");
  const std::int64_t begin = first * data.sequence_length;
  const std::int64_t count =
      std::min(config_.batch.micro_batch_size, data.rows - first) * data.sequence_length;
  const auto* wide = static_cast<const double*>(log_prob.data);
  const auto* narrow = static_cast<const float*>(log_prob.data);
  if (data.weighted()) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double weight = data.weights[static_cast<std::size_t>(begin + i)];
      const double value = log_prob.type == Scalar::f64 ? wide[i] : static_cast<double>(narrow[i]);
      log_probs64_[static_cast<std::size_t>(begin + i)] = weight == 0 ? 0 : weight * value;
    }
  } else if (log_prob.type == Scalar::f64) {
    std::copy_n(wide, count, log_probs64_.begin() + begin);
  } else {
    std::copy_n(narrow, count, log_probs32_.begin() + begin);
  }
}

double Trainer::forward_backward(const text::StepData& data, bool train, const std::stop_token& stop) {
  executor_->stop = stop;
  weights_->scales().record(train);
  const std::int64_t length = data.sequence_length;
  const std::int64_t micro = config_.batch.micro_batch_size;
  const std::int64_t count = data.rows * length;
  const double total = data.total_weight();
  const bool wide = data.weighted() || executor_->buffer("log_prob").type == Scalar::f64;
  (wide ? log_probs64_.resize(static_cast<std::size_t>(count))
        : log_probs32_.resize(static_cast<std::size_t>(count)));
  if (train && !data.weighted()) fill(executor_->buffer("dlog_prob"), micro * length, -scale() / total);
  const std::int64_t shard_rows = data.rows / config_.batch.shards;
  for (std::int64_t first = 0; first < data.rows && !stop.stop_requested(); first += micro) {
    first_row_ = first;
    fill_rows(data, first);
    if (train && data.weighted()) fill_seeds(data, first, total);
    const std::int64_t before = train ? step_ * config_.batch.global_batch_size : 0;
    batch_.key(config_.run.seed, static_cast<std::uint64_t>(before + first));
    executor_->run(graph::Phase::forward, batch_.extent());
    executor_->run(train ? graph::Phase::backward : graph::Phase::evaluate, batch_.extent(),
                   train && first % shard_rows > 0);
    if (train && (first + micro) % shard_rows == 0) finish_shard(first / shard_rows);
    keep_log_probs(data, first);
  }
  const double sum = wide ? kernels::chunked_sum(log_probs64_.data(), Scalar::f64, count)
                          : kernels::chunked_sum(log_probs32_.data(), Scalar::f32, count);
  return -sum / total;
}

std::optional<StepReport> Trainer::advance(const std::stop_token& stop) {
  const auto start = std::chrono::steady_clock::now();
  StepReport r;
  enter(part_of(step_));
  r.step = step_ + 1;
  if (scaler_) r.loss_scale = scaler_->scale();
  const text::StepData rows = data_.step(r.step, config_.batch.global_batch_size);
  r.loss = forward_backward(rows, true, stop);
  if (stop.stop_requested()) return std::nullopt;
  if (!std::isfinite(r.loss) && !scaler_) stop_non_finite(find_overflow(rows), r.loss);
  r.lr = schedule_.at(applied_ + 1);
  const UpdateResult update = update_->apply({.lr = r.lr,
                                              .t = applied_ + 1,
                                              .step = r.step,
                                              .seed = config_.run.seed,
                                              .loss_scale = scale(),
                                              .max_grad_norm = config_.optimizer.max_grad_norm});
  r.grad_norm = update.gradients.norm;
  if (update.broken) stop_beyond_format(*update.broken);
  if (update.applied()) {
    ++applied_;
  } else {
    overflowed(r, rows);
  }
  if (scaler_) scaler_->update(!update.applied());
  weights_->scales().end_step();
  weights_->quantize_copies(ctx_);
  step_ = r.step;
  const std::int64_t predicted = rows.predicted();
  tokens_ += predicted;
  r.tokens = tokens_;
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  r.tokens_per_second = static_cast<double>(predicted) / r.seconds;
  const double micros = static_cast<double>(rows.rows) / static_cast<double>(config_.batch.micro_batch_size);
  r.peak_share = cost::product_flops(program()) * micros / r.seconds / machine_.flops_per_second;
  return r;
}

std::optional<double> Trainer::validate(const std::stop_token& stop) {
  const std::int64_t rows = data_.validation_rows();
  if (rows == 0) return std::nullopt;
  const text::StepData held_out = data_.validation(0, rows);
  const double loss = forward_backward(held_out, false, stop);
  if (stop.stop_requested()) return std::nullopt;
  if (!std::isfinite(loss)) {
    stop_at_value(fmt::format("step {}: the loss on held-out rows is {}", step_, runtime::unsigned_nan(loss)),
                  find_overflow(held_out, false), false);
  }
  return loss;
}

Overflow Trainer::find_overflow(const text::StepData& rows, bool train) {
  // The weights are those before the step: the same micro-batches run again under an observer that looks for
  // the first.
  const std::optional<runtime::NonFinite> first =
      runtime::find_first_non_finite(*executor_, first_row_, [&] { forward_backward(rows, train, {}); });
  Overflow overflow;
  std::vector<std::int64_t> origins;
  if (first) {
    overflow.what = first->text();
    overflow.scope = first->scope;
    overflow.cure = first->cure();
    for (const std::int64_t row : first->rows) {  // held-out rows may not fill the last micro-batch
      if (row < rows.rows) origins.push_back(rows.origin[static_cast<std::size_t>(row)]);
    }
  } else if (program().shards > 1) {  // no step of the plan made it
    overflow.what =
        fmt::format("a sum of the gradients of {} shards in {}", program().shards, name(program().reduce));
    overflow.cure = {"--set", "precision.reduce=f32"};
  }
  if (origins.empty()) origins.assign(rows.origin.begin(), rows.origin.end());
  constexpr std::size_t kMost = 16;
  const std::size_t shown = std::min(origins.size(), kMost);
  overflow.rows = fmt::format(
      "{} {}{} of {}", origins.size() == 1 ? "row" : "rows",
      fmt::join(origins.begin(), origins.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < origins.size() ? fmt::format(" and {} more", origins.size() - shown) : "", data_.name());
  return overflow;
}

void Trainer::overflowed(StepReport& report, const text::StepData& rows) {
  Overflow overflow = find_overflow(rows);
  if (!scaler_) stop_non_finite(overflow, report.loss);
  if (scaler_->at_minimum()) stop_at_minimum(overflow);
  report.skipped = true;
  report.overflow = std::move(overflow);
}

void Trainer::stop_at_minimum(const Overflow& overflow) const {
  std::vector<Cure> cures;
  if (!overflow.cure.empty()) {
    cures.push_back(resumed(overflow.cure));
  } else if (!overflow.scope.empty()) {
    cures.push_back(resumed_with_rule(overflow.scope + ": compute=f32"));
  }
  cures.push_back(resumed({"--precision", "bf16-mixed"}));
  cures.push_back(resumed({"--set", "precision.loss_scale.raise_error_at_min_scale=false"},
                          "skips such steps for ever; a higher min_loss_scale stops sooner, not later"));
  throw RunStopped(
      fmt::format("step {}: the gradients overflow and the loss scale is at its minimum of {}; the "
                  "first value that is not finite is {}; data {}; no weight was changed by this step",
                  step_ + 1, scaler_->options().min_scale, overflow.what, overflow.rows),
      std::move(cures));
}

void Trainer::stop_non_finite(const Overflow& overflow, double loss) const {
  stop_at_value(fmt::format("step {}: {}", step_ + 1,
                            std::isfinite(loss) ? "a gradient is not finite"
                                                : fmt::format("the loss is {}", runtime::unsigned_nan(loss))),
                overflow, true);
}

void Trainer::stop_at_value(const std::string& what, const Overflow& overflow, bool changes_weights) const {
  std::string message = what;
  if (!overflow.what.empty()) message += fmt::format("; the first such value is {}", overflow.what);
  message += fmt::format("; data {}", overflow.rows);
  if (changes_weights) message += "; no weight was changed by this step";
  std::vector<Cure> cures;
  const precision::Use use{overflow.scope, "", precision::Pass::forward, step_};
  const bool lowered = bytes_of(config_.policy.resolve(use).compute->factor.format) < 4;
  if (!overflow.cure.empty()) {
    cures.push_back(resumed(overflow.cure));
  } else if (lowered && !overflow.scope.empty()) {
    cures.push_back(resumed_with_rule(overflow.scope + ": compute=f32"));
  }
  if (lowered || !overflow.cure.empty()) {
    cures.push_back(resumed({"--precision", "32-true"}));
  } else {
    cures.push_back(resumed({"--set", fmt::format("optimizer.lr={:g}", config_.optimizer.lr / 2)},
                            "from an earlier state, where there is one: --resume=STEP"));
  }
  throw RunStopped(message, std::move(cures));
}

void Trainer::stop_beyond_format(const runtime::Executor::Broken& broken) const {
  const plan::Step& step = *broken.step;
  const plan::Slot& slot = *plan::written_slot(update_->program(), step);
  const double value = broken.weight.value;
  const std::string module = slot.name.substr(0, slot.name.rfind('.'));
  if (!std::isfinite(value)) {
    throw RunStopped(
        fmt::format(
            "step {}: the update in {} would make {} {} at element {}; no weight was changed by this step",
            step_ + 1, name(step.interior), slot.name, runtime::unsigned_nan(value), broken.weight.element),
        {resumed(runtime::interior_cure(module, "update"))});
  }
  throw RunStopped(
      fmt::format("step {}: the update would take {} beyond its format: {:.4g} {} {} ({}) at element {}; no "
                  "weight was changed by this step",
                  step_ + 1, slot.name, value, value > 0 ? ">" : "<",
                  std::copysign(traits(slot.master).max_finite, value), name(slot.master),
                  broken.weight.element),
      {resumed_with_rule(module + ": params=f32"),
       resumed({"--set", fmt::format("optimizer.lr={:g}", config_.optimizer.lr / 2)})});
}

std::vector<Trainer::NamedMemory> Trainer::state_memory() {
  std::vector<NamedMemory> all;
  const auto add = [&](std::string name, const plan::Buffer& b, std::byte* data) {
    std::vector<std::int64_t> shape;
    for (const Dim& d : b.shape.dims()) shape.push_back(d.size);
    const std::size_t bytes = static_cast<std::size_t>(b.shape.count()) * bytes_of(b.type);
    all.push_back({std::move(name), b.type, shape, {data, bytes}, b.random == RandomUse::compensation});
  };
  const plan::Program& update = update_->program();
  for (std::size_t i = 0; i < program().slots.size(); ++i) {
    const plan::Buffer& master = program().buffer(program().slots[i].master_buffer);
    add("master." + master.name, master, static_cast<std::byte*>(weights_->master(i).data));
    for (const Update::State& state : update_->states()) {
      const plan::Buffer& b = update.buffer(state.buffer);
      if (b.slot == static_cast<std::int32_t>(i)) add(b.name, b, state.data);
    }
  }
  runtime::Scales& scales = weights_->scales();
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const std::span<float> history = scales.history(i);
    if (history.empty()) continue;
    all.push_back({"amax." + scales.slot(i).name,
                   Scalar::f32,
                   {static_cast<std::int64_t>(history.size())},
                   std::as_writable_bytes(history),
                   true,
                   true});
  }
  return all;
}

}  // namespace mantissa::train
