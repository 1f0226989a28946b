#include "mantissa/engine/runtime/interleaved.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "mantissa/engine/plan/products.h"
#include "mantissa/kernels/interleave.h"

namespace mantissa::runtime {
namespace {

struct Weight {
  const plan::Buffer* buffer = nullptr;
  const std::byte* memory = nullptr;
  std::optional<QuantFormat> quants = {};

  std::size_t bytes() const {
    if (quants) return kernels::interleaved_bytes(buffer->shape.leading(), buffer->shape.last(), *quants);
    return kernels::interleaved_bytes(buffer->shape.leading(), buffer->shape.last(), buffer->type);
  }
};

/// Returns the weights to interleave, each once.
std::vector<Weight> multiplied_as_stored(const plan::Program& program, const WeightSet& weights) {
  std::vector<Weight> all;
  for (const plan::Step& step : program.steps) {
    if (step.phase != graph::Phase::forward || step.op->kind != graph::OpKind::product) continue;
    const std::optional<plan::StepProduct> product = plan::product_of(program, step);
    if (!product || step.op->quantized != 1 || step.op->sums_tokens || product->stored.b_across) continue;
    const plan::BufferId id = step.inputs[1].buffer;
    const plan::Buffer& b = program.buffer(id);
    const bool weight = b.home == plan::Home::master || b.home == plan::Home::copy;
    if (!weight || !kernels::interleaves(b.type) || b.layout().blocks) continue;
    const std::optional<QuantizedMatrix> quants = weights.quants(program, id);
    if (quants && (quants->transposed || !kernels::interleaves(quants->format) || b.type == Scalar::f16))
      continue;
    if (!step.inputs[1].operand.plain() || !holds(product->stored.product.b.format, b.type)) continue;
    const std::byte* memory = weights.find(program, id);
    if (memory != nullptr && std::ranges::find(all, memory, &Weight::memory) == all.end())
      all.push_back({&b, memory, quants ? std::optional(quants->format) : std::nullopt});
  }
  return all;
}

}  // namespace

InterleavedWeights::InterleavedWeights(const plan::Program& program, const WeightSet& weights)
    : storage_(weights.device().allocate(bytes(program, weights))) {
  std::size_t end = 0;
  for (const Weight& w : multiplied_as_stored(program, weights)) {
    const Shape& shape = w.buffer->shape;
    const kernels::Context& ctx = weights.device().host();
    std::byte* to = storage_.data() + end;
    if (w.quants) {
      kernels::interleave(ctx, shape.leading(), shape.last(), *w.quants, w.memory, to);
    } else {
      kernels::interleave(ctx, shape.leading(), shape.last(), {w.memory, w.buffer->type, shape.last()}, to);
    }
    copies_[w.memory] = end;
    end += w.bytes();
  }
}

std::size_t InterleavedWeights::bytes(const plan::Program& program, const WeightSet& weights) {
  std::size_t sum = 0;
  for (const Weight& w : multiplied_as_stored(program, weights)) sum += w.bytes();
  return sum;
}

const std::byte* InterleavedWeights::find(const std::byte* memory) const {
  const auto at = copies_.find(memory);
  return at == copies_.end() ? nullptr : storage_.data() + at->second;
}

}  // namespace mantissa::runtime
