#include "mantissa/train/steps/update.h"

namespace mantissa::train {

Update::Update(std::span<const optim::Number> numbers, runtime::Session& training, std::byte* kept)
    : numbers_(numbers),
      training_(training),
      arena_(training.executor().idle()),
      executor_(*training.program().update, training.weights(), &arena_) {
  const plan::Program& p = program();
  for (std::size_t i = 0; i < p.slots.size(); ++i) {
    if (p.slots[i].gradient == plan::kNoBuffer) continue;
    const Matrix gradient = training.executor().buffer(training.program().slots[i].gradient);
    executor_.place(p.slots[i].gradient, static_cast<std::byte*>(gradient.data));
    gradients_.push_back({gradient, p.slots[i].shape.count()});
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

UpdateResult Update::apply(const UpdateStep& step, runtime::HealthProbe* probe) {
  training_.executor().require_held();  // the gradients lie in its arena
  UpdateResult result{
      optim::check_gradients(training_.device().host(), gradients_, step.max_grad_norm, step.loss_scale)};
  if (step.checks && !result.gradients.finite) return result;
  if (probe != nullptr) {
    std::vector<runtime::DecayNumber> decays;
    for (const optim::Number& number : numbers_) {
      if (number.undecayed) decays.push_back({number.name, *number.undecayed});
    }
    probe->observe_update(executor_, step.loss_scale, std::move(decays));
  }
  const optim::Progress now{step.lr, step.t, result.gradients.factor, program().arithmetic};
  executor_.hold();
  for (const optim::Number& number : numbers_) write(executor_.buffer(number.name), number.of(now));
  Extent extent;
  extent.seed = step.seed;
  extent.step = static_cast<std::uint64_t>(step.step);
  if (step.checks) result.broken = executor_.find_broken(extent);
  result.applied = !result.broken;
  if (result.applied) executor_.run(graph::Phase::update, extent);
  return result;
}

}  // namespace mantissa::train
