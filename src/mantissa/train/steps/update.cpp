#include "mantissa/train/steps/update.h"

namespace mantissa::train {

Update::Update(std::span<const optim::Number> numbers, runtime::Session& training, std::byte* kept,
               UpdateShares* shares)
    : numbers_(numbers),
      training_(training),
      shares_(shares),
      arena_(training.executor().idle()),
      executor_(*training.program().update, training.weights(), &arena_) {
  const plan::Program& p = program();
  for (std::size_t i = 0; i < p.slots.size(); ++i) {
    if (training.program().slots[i].gradient == plan::kNoBuffer) continue;
    const std::optional<Matrix> shared = shares == nullptr ? std::nullopt : shares->gradient(i);
    const Matrix gradient =
        shared ? *shared : training.executor().buffer(training.program().slots[i].gradient);
    slots_.push_back(i);
    gradients_.push_back({gradient, p.slots[i].shape.count()});
    reads_.push_back(p.slots[i].gradient != plan::kNoBuffer);
    if (reads_.back()) executor_.place(p.slots[i].gradient, static_cast<std::byte*>(gradient.data));
  }
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    if (p.buffers[b].home != plan::Home::kept) continue;
    states_.push_back({static_cast<plan::BufferId>(b), kept + p.buffers[b].offset});
    executor_.place(states_.back().buffer, states_.back().data);
  }
}

void Update::write(Matrix number, double value) {
  training_.device().upload(static_cast<std::byte*>(number.data), std::as_bytes(std::span(&value, 1)));
}

std::vector<kernels::GradientNorm> Update::norms() {
  std::vector<kernels::GradientNorm> all(gradients_.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const optim::Gradient& g = gradients_[i];
    if (reads_[i])
      all[i] = kernels::gradient_norm(training_.device().host(), g.matrix.data, g.matrix.type, g.count);
  }
  if (shares_ != nullptr) shares_->complete(all);
  return all;
}

std::optional<BrokenWeight> Update::find_broken(const Extent& extent) {
  std::optional<BrokenWeight> own;
  if (const std::optional<runtime::Executor::Broken> found = executor_.find_broken(extent)) {
    const plan::Slot* slot = plan::written_slot(program(), *found->step);
    own = {static_cast<std::size_t>(slot - program().slots.data()), found->step->interior, found->weight};
  }
  return shares_ == nullptr ? own : shares_->first(own);
}

UpdateResult Update::apply(const UpdateStep& step, runtime::HealthProbe* probe) {
  training_.executor().require_held();  // the gradients lie in its arena
  UpdateResult result{optim::check_norms(norms(), step.max_grad_norm, step.loss_scale)};
  if (step.checks && !result.gradients.finite) return result;
  if (probe != nullptr) {
    std::vector<runtime::DecayNumber> decays;
    for (const optim::Number& number : numbers_) {
      if (number.undecayed) decays.push_back({number.name, *number.undecayed});
    }
    std::vector<Matrix> gradients(program().slots.size());
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      if (reads_[i]) gradients[slots_[i]] = gradients_[i].matrix;
    }
    probe->observe_update(executor_, gradients, step.loss_scale, std::move(decays));
  }
  const optim::Progress now{step.lr, step.t, result.gradients.factor, program().arithmetic};
  executor_.hold();
  for (const optim::Number& number : numbers_) write(executor_.buffer(number.name), number.of(now));
  Extent extent;
  extent.seed = step.seed;
  extent.step = static_cast<std::uint64_t>(step.step);
  if (step.checks) result.broken = find_broken(extent);
  result.applied = !result.broken;
  if (result.applied) executor_.run(graph::Phase::update, extent);
  return result;
}

}  // namespace mantissa::train
