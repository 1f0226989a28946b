#include "mantissa/engine/runtime/health.h"

#include <algorithm>
#include <utility>

#include "mantissa/core/numeric/round.h"
#include "mantissa/engine/runtime/count_parts.h"
#include "mantissa/kernels/block_losses.h"
#include "mantissa/kernels/scaled.h"

namespace mantissa::runtime {
namespace {

double share(std::int64_t part, double of) {
  return of > 0 ? static_cast<double>(part) / of : 0;
}

/// True if a number of `wide` leaves the range of `s` only where it leaves that of `wide`: for bf16 and f32.
bool has_range_of(Scalar s, Scalar wide) {
  return traits(s).min_normal_exp <= traits(wide).min_normal_exp;
}

/// Returns the number of a compensation's first elements that are kept for comparison, in place of a copy of
/// all.
std::int64_t sampled(const graph::Argument& compensation) {
  constexpr std::int64_t kMost = std::int64_t{1} << 16;
  return std::min(kMost, compensation.rows * compensation.width);
}

/// Returns the result of an update that keeps what the rounding of its weight lost, or null.
const graph::Argument* compensation_of(const plan::Program& update, const plan::Step& step,
                                       const graph::Call& call) {
  for (std::size_t o = 0; o < step.outputs.size(); ++o) {
    if (update.buffer(step.outputs[o]).random == RandomUse::compensation) return &call.outputs[o];
  }
  return nullptr;
}

}  // namespace

HealthProbe::HealthProbe(Session& training, bool distributions)
    : training_(training), distributions_(distributions) {
  for (const plan::Slot& slot : training.program().slots) {
    ParameterHealth health;
    health.name = slot.name;
    health.elements = slot.shape.count();
    health.master = slot.master;
    health.vector = slot.shape.dims().size() == 1;
    seen_.push_back({std::move(health), 0, std::make_unique<kernels::RangeCounter>()});
  }
  training_.executor().attach(*this);
}

HealthProbe::~HealthProbe() {
  (update_ == nullptr ? training_.executor() : *update_).detach(*this);
}

void HealthProbe::before(const plan::Step& step, graph::Call& call) {
  if (update_ != nullptr) {
    see_update(step, call);
    compensation_.clear();
    if (const graph::Argument* c = compensation_of(update_->program(), step, call)) {
      const auto bytes = static_cast<std::size_t>(sampled(*c)) * bytes_of(c->type);
      compensation_.assign(static_cast<const std::byte*>(c->data),
                           static_cast<const std::byte*>(c->data) + bytes);
    }
    return;
  }
  if (step.op->duty == graph::Duty::collect || step.op->rounds_gradient) see_gradient(step, call);
}

void HealthProbe::after(const plan::Step& step, const graph::Call& call) {
  const plan::Slot* slot = update_ == nullptr ? nullptr : plan::written_slot(update_->program(), step);
  const graph::Argument* c = slot == nullptr ? nullptr : compensation_of(update_->program(), step, call);
  if (c == nullptr || compensation_.empty()) return;
  ParameterHealth& health = seen_[static_cast<std::size_t>(slot - update_->program().slots.data())].health;
  const std::int64_t equal =
      kernels::count_equal(call.ctx, sampled(*c), compensation_.data(), c->type, c->data, c->type);
  health.compensation_stayed = share(equal, static_cast<double>(sampled(*c)));
}

void HealthProbe::see_gradient(const plan::Step& step, graph::Call& call) {
  const std::vector<plan::Slot>& slots = training_.program().slots;
  for (std::size_t o = 0; o < step.outputs.size(); ++o) {
    const auto slot = std::ranges::find(slots, step.outputs[o], &plan::Slot::gradient);
    const graph::Argument& gradient = call.outputs[o];
    if (slot == slots.end() || has_range_of(gradient.type, call.arithmetic)) continue;
    Seen& s = seen_[static_cast<std::size_t>(slot - slots.begin())];
    s.rounded += static_cast<double>(s.health.elements);
    if (step.op->duty != graph::Duty::collect) {
      call.losses = s.losses.get();
      continue;
    }
    const graph::Argument& contribution = call.inputs[1];
    s.losses->add(kernels::count_gradient_losses(call.ctx, s.health.elements, contribution.data,
                                                 contribution.type, gradient.data, gradient.type,
                                                 call.accumulate));
  }
}

std::vector<HealthProbe::Rounded> HealthProbe::rounded() const {
  std::vector<Rounded> all;
  for (const Seen& s : seen_) all.push_back({s.rounded, s.losses->count()});
  return all;
}

void HealthProbe::observe_update(Executor& update, std::span<const Matrix> gradients, double loss_scale,
                                 std::vector<DecayNumber> decays) {
  if (rounded_.empty()) rounded_ = rounded();
  decays_ = std::move(decays);
  training_.executor().detach(*this);
  const kernels::Context& ctx = training_.device().host();
  const std::vector<plan::Slot>& slots = training_.program().slots;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Seen& s = seen_[i];
    s.health.grads_flushed = share(rounded_[i].lost.flushed, rounded_[i].count);
    s.health.grads_saturated = share(rounded_[i].lost.saturated, rounded_[i].count);
    const Matrix gradient = gradients[i];
    if (gradient.data == nullptr) continue;
    s.health.grad_absmax =
        static_cast<double>(kernels::absolute_maximum(ctx, s.health.elements, gradient.data, gradient.type)) /
        loss_scale;
    if (distributions_) {
      s.distributions = std::make_shared<ParameterDistributions>();
      s.distributions->gradient = count_distribution(
          ctx, s.health.elements, {gradient.data, gradient.type, gradient.ld}, 1 / loss_scale);
    }
    measure_copies(i);
  }
  update_ = &update;
  update.attach(*this);
}

void HealthProbe::measure_copies(std::size_t slot) {
  const WeightSet& weights = training_.weights();
  const plan::Program& program = weights.program();
  ParameterHealth& health = seen_[slot].health;
  const Matrix master = weights.master(slot);
  for (const plan::BufferId id : program.slots[slot].copies) {
    const plan::Buffer& copy = program.buffer(id);
    const bool scaled = copy.scaled && copy.scaled->scale >= 0;
    const bool blocks = copy.layout().blocks.has_value();
    if (bytes_of(copy.type) > 1 && !blocks) continue;
    const TensorScale* scale = scaled ? weights.scale(program, copy.scaled->scale) : nullptr;
    if (scaled && scale == nullptr) continue;
    if (blocks) {
      measure_blocks(slot, id, scale);
      continue;
    }
    const double factor = scaled ? static_cast<double>(scale->scale) : 1;
    // A scale of this step puts the largest magnitude at that of the format, give or take a rounding.
    const double limit = overflow_bound(copy.type) / factor;
    const std::int64_t beyond =
        kernels::count_beyond(training_.device().host(), health.elements, master.data, master.type, limit);
    health.saturated =
        std::max(health.saturated.value_or(0), share(beyond, static_cast<double>(health.elements)));
    if (scaled) health.scale = factor;
  }
}

void HealthProbe::measure_blocks(std::size_t slot, plan::BufferId id, const TensorScale* scale) {
  const WeightSet& weights = training_.weights();
  const plan::Buffer& copy = weights.program().buffer(id);
  const std::byte* data = weights.find(weights.program(), id);
  if (data == nullptr) return;
  const Matrix master = weights.master(slot);
  const kernels::BlockLosses lost =
      kernels::count_block_losses(training_.device().host(), {master.data, master.type, master.ld},
                                  {data, copy.shape.leading(), copy.shape.last(), *copy.layout().blocks,
                                   scale == nullptr ? 1 : scale->scale});
  ParameterHealth& health = seen_[slot].health;
  const auto elements = static_cast<double>(health.elements);
  health.saturated = std::max(health.saturated.value_or(0), share(lost.range.saturated, elements));
  health.vanished = std::max(health.vanished.value_or(0), share(lost.range.flushed, elements));
  if (scale != nullptr) health.scale = static_cast<double>(scale->scale);
  if (lost.most_scale == 0) return;
  const auto least = static_cast<double>(lost.least_scale), most = static_cast<double>(lost.most_scale);
  health.least_scale = std::min(health.least_scale.value_or(least), least);
  health.most_scale = std::max(health.most_scale.value_or(most), most);
}

void HealthProbe::see_update(const plan::Step& step, const graph::Call& call) {
  const plan::Slot* slot = plan::written_slot(update_->program(), step);
  if (slot == nullptr) return;
  kernels::UnmovedCount unmoved;
  graph::Call counting = call;
  counting.unmoved = &unmoved;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const std::string& name = update_->program().buffer(step.inputs[i].buffer).name;
    const auto decay = std::ranges::find(decays_, name, &DecayNumber::name);
    if (decay != decays_.end()) counting.decay = {i, decay->undecayed};
  }
  update_->device().run(*step.op, counting);
  Seen& s = seen_[static_cast<std::size_t>(slot - update_->program().slots.data())];
  const auto elements = static_cast<double>(s.health.elements);
  s.health.updates_lost = share(unmoved.lost, elements);
  s.health.updates_zero = share(unmoved.idle, elements);
  s.updated = true;
}

std::vector<ParameterHealth> HealthProbe::finish(const CountUnchanged& unchanged) {
  const kernels::Context& ctx = training_.device().host();
  std::vector<ParameterHealth> all;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    Seen& s = seen_[i];
    if (!s.updated) continue;
    const Matrix master = training_.weights().master(i);
    s.health.weight_absmax =
        static_cast<double>(kernels::absolute_maximum(ctx, s.health.elements, master.data, master.type));
    if (s.distributions != nullptr) {
      s.distributions->weight =
          count_distribution(ctx, s.health.elements, {master.data, master.type, master.ld}, 1);
      s.health.distributions = s.distributions;
    }
    const plan::Slot& slot = training_.weights().program().slots[i];
    if (unchanged) {
      if (const std::optional<std::int64_t> same = unchanged(slot, {master.data, master.type, master.ld}))
        s.health.never_moved = share(*same, static_cast<double>(s.health.elements));
    }
    all.push_back(s.health);
  }
  return all;
}

}  // namespace mantissa::runtime
