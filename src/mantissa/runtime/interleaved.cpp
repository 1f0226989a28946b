#include "mantissa/runtime/interleaved.h"

#include <optional>

#include "mantissa/kernels/interleave.h"
#include "mantissa/plan/products.h"

namespace mantissa::runtime {
namespace {

/// Calls see(buffer, memory) for every weight to interleave. A weight of several products is seen as often.
template <class See>
void each(const plan::Program& program, const WeightSet& weights, const See& see) {
  for (const plan::Step& step : program.steps) {
    if (step.phase != graph::Phase::forward || step.op->kind != graph::OpKind::product) continue;
    const std::optional<plan::StepProduct> product = plan::product_of(program, step);
    if (!product || step.op->quantised != 1 || step.op->sums_tokens || product->stored.b_across) continue;
    const plan::BufferId id = step.inputs[1].buffer;
    const plan::Buffer& b = program.buffer(id);
    const bool weight = b.home == plan::Home::master || b.home == plan::Home::copy;
    if (!weight || !kernels::interleaves(b.type) || b.layout().blocks || weights.quants(program, id))
      continue;
    if (!step.inputs[1].operand.plain() || !holds(product->stored.product.b.format, b.type)) continue;
    if (const std::byte* memory = weights.find(program, id)) see(b, memory);
  }
}

std::size_t bytes_of_copy(const plan::Buffer& b) {
  return kernels::interleaved_bytes(b.shape.leading(), b.shape.last(), b.type);
}

}  // namespace

InterleavedWeights::InterleavedWeights(const plan::Program& program, const WeightSet& weights) {
  std::size_t end = 0;
  each(program, weights, [&](const plan::Buffer& b, const std::byte* memory) {
    if (copies_.try_emplace(memory, end).second) end += bytes_of_copy(b);
  });
  storage_ = weights.device().allocate(end);
  std::size_t done = 0;
  each(program, weights, [&](const plan::Buffer& b, const std::byte* memory) {
    const std::size_t at = copies_.at(memory);
    if (at < done) return;
    kernels::interleave(weights.device().host(), b.shape.leading(), b.shape.last(),
                        {memory, b.type, b.shape.last()}, storage_.data() + at);
    done = at + bytes_of_copy(b);
  });
}

std::size_t InterleavedWeights::bytes(const plan::Program& program, const WeightSet& weights) {
  std::map<const std::byte*, std::size_t> sizes;
  each(program, weights,
       [&](const plan::Buffer& b, const std::byte* memory) { sizes[memory] = bytes_of_copy(b); });
  std::size_t sum = 0;
  for (const auto& [memory, size] : sizes) sum += size;
  return sum;
}

const std::byte* InterleavedWeights::find(const std::byte* memory) const {
  const auto at = copies_.find(memory);
  return at == copies_.end() ? nullptr : storage_.data() + at->second;
}

}  // namespace mantissa::runtime
