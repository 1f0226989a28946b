#include "mantissa/train/update.h"

namespace mantissa::train {

Update::Update(std::span<const optim::Number> numbers, const runtime::WeightSet& weights,
               const runtime::Executor& training, std::byte* kept, const kernels::Context& ctx)
    : numbers_(numbers), ctx_(ctx), executor_(*training.program().update, weights, ctx, training.idle()) {
  const plan::Program& p = program();
  for (std::size_t i = 0; i < p.slots.size(); ++i) {
    if (p.slots[i].gradient == plan::kNoBuffer) continue;
    const Matrix gradient = training.buffer(training.program().slots[i].gradient);
    executor_.place(p.slots[i].gradient, static_cast<std::byte*>(gradient.data));
    gradients_.push_back({gradient, p.slots[i].shape.count()});
  }
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    if (p.buffers[b].home != plan::Home::kept) continue;
    states_.push_back({static_cast<plan::BufferId>(b), kept + p.buffers[b].offset});
    executor_.place(states_.back().buffer, states_.back().data);
  }
}

UpdateResult Update::apply(const UpdateStep& step) {
  UpdateResult result{optim::check_gradients(ctx_, gradients_, step.max_grad_norm, step.loss_scale)};
  if (!result.gradients.finite) return result;
  const optim::Progress now{step.lr, step.t, result.gradients.factor, program().arithmetic};
  for (const optim::Number& number : numbers_)
    *static_cast<double*>(executor_.buffer(number.name).data) = number.of(now);
  Extent extent;
  extent.seed = step.seed;
  extent.step = static_cast<std::uint64_t>(step.step);
  result.broken = executor_.find_broken(extent);
  if (!result.broken) executor_.run(graph::Phase::update, extent);
  return result;
}

}  // namespace mantissa::train
